"""The expressions of the untransformed lane, on a table instead of a stream."""

from pyspark.sql import Row, SparkSession

from backend.domain import limits, routing
from backend.domain import message as names
from backend.domain.message import Message, new_message_id, utc_now
from spark_jobs.jobs.adapting import advance

SCHEMA = "key binary, value binary, headers array<struct<key:string,value:binary>>"


def advanced(
    spark: SparkSession, *, slip: tuple[str, ...], body: bytes, header: bytes = b""
) -> tuple[Row, dict[str, bytes]]:
    """The record, and its headers by name."""
    message = Message(new_message_id(), "p", 1, b"k", body, "application/json", utc_now(), slip)
    headers = [(name, bytearray(value)) for name, value in (*message.headers(), ("other", header))]
    records = spark.createDataFrame([(bytearray(b"k"), bytearray(body), headers)], SCHEMA)
    [record] = advance(records).collect()
    return record, {header["key"]: bytes(header["value"]) for header in record["headers"]}


def test_a_record_goes_to_the_next_topic_of_its_slip(spark: SparkSession) -> None:
    record, headers = advanced(spark, slip=(routing.FILTER, routing.ADAPTED), body=b"x" * 1_000_000)
    assert (record["topic"], bytes(record["key"]), len(record["value"])) == (routing.FILTER, b"k", 1_000_000)
    assert headers[names.ROUTING_SLIP] == routing.ADAPTED.encode()
    assert names.DEAD_REASON not in headers


def test_a_record_without_a_way_on_is_a_dead_letter(spark: SparkSession) -> None:
    record, headers = advanced(spark, slip=("elsewhere",), body=b"x", header=b"y" * 100_000)
    assert (record["topic"], bytes(record["value"])) == (routing.DEAD_LETTER, b"x")
    assert headers[names.DEAD_REASON] == b"malformed"
    assert len(headers["other"]) == limits.HEADER_BYTES


def test_a_record_that_no_message_may_be_is_a_dead_letter_that_kafka_takes(spark: SparkSession) -> None:
    record, headers = advanced(spark, slip=(routing.ADAPTED,), body=b"x" * (2 * limits.TOPIC_BYTES))
    assert (record["topic"], len(record["value"])) == (routing.DEAD_LETTER, limits.BODY_BYTES)
    assert headers[names.DEAD_REASON] == b"too_large"
    assert headers[names.ROUTING_SLIP] == routing.ADAPTED.encode()
