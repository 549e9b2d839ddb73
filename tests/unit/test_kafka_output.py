"""Records that are too large, by the Kafka output's own client or by the cluster. No broker is asked."""

import asyncio
import uuid
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from backend.connectors import kafka
from backend.connectors.kafka import KafkaDeliver, KafkaOptions
from backend.connectors.parts.kafka_cluster import Cluster, KafkaConnection
from backend.domain import limits
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import RuntimeConnector
from backend.domain.message import Message
from backend.domain.pipeline import OutputConfig
from backend.kafka.client.producer import AsyncProducer


class Acknowledged:
    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7


class Made:
    """A producer for which the cluster answers to each record with this error, or acknowledges it."""

    def __init__(self, code: int | None) -> None:
        self._code = code
        self.sent = 0

    def send(self, topic: str, **_: Any) -> asyncio.Future[Any]:
        self.sent += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._code is None:
            answer.set_result(Acknowledged())
        else:
            answer.set_exception(KafkaException(KafkaError(self._code)))
        return answer


def message(size: int) -> Message:
    return Message(
        id="m", pipeline_id="p", version=1, key=b"k", body=b"x" * size, content_type="text/plain",
        received_at="now", slip=("next",),
    )  # fmt: skip


def opened() -> KafkaDeliver:
    """Without asking the cluster, which does not exist."""
    output = KafkaDeliver(KafkaConnection(bootstrap_servers="127.0.0.1:1"), KafkaOptions(topic="orders"))
    output._cluster = Cluster(output.connection)
    return output


@pytest.mark.parametrize(("limit", "milliseconds"), [(60, 48_000), (10, 8000), (0.5, 1000)])
def test_the_client_tries_for_most_of_the_deliverys_time_limit(
    limit: float, milliseconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(kafka, "AsyncProducer", made.append)
    connector = RuntimeConnector(type="kafka", connection={"bootstrap_servers": "127.0.0.1:1"})
    fields = {"name": "out", "connector": str(uuid.uuid4()), "options": {"topic": "orders"}, "timeout_seconds": limit}
    output = OutputConfig.model_validate(fields).bind(connector)
    output._cluster = Cluster(output.connection)
    output._new_producer()
    assert made[0]["message.timeout.ms"] == milliseconds


async def test_what_the_client_itself_refuses_is_not_sent_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    output = opened()
    output._producer = output._new_producer()
    monkeypatch.setattr(output, "_new_producer", lambda **_: pytest.fail("There is no need of another producer."))
    try:
        with pytest.raises(DeliveryError) as refused:
            await output.deliver(message(limits.TOPIC_BYTES + 1))
    finally:
        await output.close()
    assert not refused.value.retryable


@pytest.mark.parametrize("code", [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE])
async def test_a_record_of_a_batch_that_the_cluster_refuses_is_sent_again_alone(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = opened()
    batched, alone = Made(code), Made(None)
    monkeypatch.setattr(output, "_producer", batched)
    monkeypatch.setattr(output, "_new_producer", lambda **_: alone)
    receipts = [await output.deliver(message(10)) for _ in range(2)]
    assert [receipt.status for receipt in receipts] == ["orders[0]@7"] * 2
    assert (batched.sent, alone.sent) == (2, 2)


async def test_a_record_may_be_as_large_as_a_topic_takes() -> None:
    output = opened()
    producer = output._new_producer()
    assert isinstance(producer, AsyncProducer)
    producer.send("orders", key=None, value=b"x" * limits.RECORD_BYTES, headers=[]).cancel()
    with pytest.raises(KafkaException):
        producer.send("orders", key=None, value=b"x" * (limits.TOPIC_BYTES + 1), headers=[])
    await producer.close(0)


def test_a_broker_that_is_only_unreachable_hides_no_certificate_until_one_answers() -> None:
    cluster = Cluster(KafkaConnection(bootstrap_servers="a:9092,b:9092"))

    def said() -> str:
        return str(cluster.error(KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))))

    assert "do not answer" in said()
    cluster._report(KafkaError(KafkaError._SSL, "SSL handshake failed: certificate verify failed: ssl.ca.location"))
    cluster._report(KafkaError(KafkaError._TRANSPORT, "Connect failed: Connection refused"))
    cluster._report(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert "The certificate of a broker is not trusted" in said()
    assert "ssl.ca.location" not in said()
    cluster.reached()
    assert not cluster.unreachable
    cluster._report(KafkaError(KafkaError._TRANSPORT, "Connect failed: Connection refused"))
    assert said() == "Kafka: Connect failed: Connection refused."


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (KafkaError._TRANSPORT, "connection"),
        (KafkaError._RESOLVE, "dns"),
        (KafkaError._SSL, "tls"),
        (KafkaError._AUTHENTICATION, "kafka_authentication"),
    ],
)
def test_a_record_that_times_out_has_the_reason_that_was_reported(code: int, reason: str) -> None:
    cluster = Cluster(KafkaConnection(bootstrap_servers="a:9092"))
    timed_out = KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT))
    assert cluster.error(timed_out).reason == "connection"
    cluster._report(KafkaError(code))
    assert cluster.error(timed_out).reason == reason
    refused = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert cluster.error(refused).reason == "kafka_topic_authorization_failed"
