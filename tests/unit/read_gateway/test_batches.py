"""Record batches, read back by a decoder that is not ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from backend.collections.documents import Document
from backend.domain import json
from backend.domain.avro.schema import AvroSchema
from backend.kafka.gateway.batch_cache import BatchCache
from backend.kafka.gateway.batches import Batch, Compression, batches, varint
from backend.kafka.gateway.ports import Record
from backend.kafka.gateway.values import Schema, Values, flagged

_RECORDS = st.lists(
    st.tuples(
        st.integers(0, 2**40),
        st.none() | st.binary(max_size=40),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=2),
    ),
    min_size=1,
    max_size=30,
)


def decoded(data: bytes) -> list[Record]:
    records = []
    unread = MemoryRecords(data)
    while unread.has_next():
        batch = unread.next_batch()
        assert batch.validate_crc()
        records += [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    return records


@given(_RECORDS, st.integers(0, 2**50), st.sampled_from([Compression.NONE, Compression.GZIP]), st.integers(1, 2000))
def test_another_decoder_reads_what_was_encoded(
    drawn: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]],
    base: int,
    compression: Compression,
    size: int,
) -> None:
    records = [Record(base + n, time, key, value, tuple(h)) for n, (time, key, value, h) in enumerate(drawn)]
    encoded = list(batches(records, 3, compression, size))
    assert decoded(b"".join(batch.data for batch in encoded)) == records
    assert [batch.base for batch in encoded[1:]] == [batch.last + 1 for batch in encoded[:-1]]
    assert int.from_bytes(encoded[0].data[12:16], "big") == 3  # the leader epoch


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, b"\0"), (-1, b"\1"), (1, b"\2"), (-64, b"\x7f"), (64, b"\x80\1"), (300, b"\xd8\4")]
)
def test_variable_length_integers(value: int, encoded: bytes) -> None:
    assert varint(value) == encoded


def test_the_cache_keeps_what_was_used_last() -> None:
    cache = BatchCache(max_bytes=250)
    for base in (0, 10, 20):
        cache.put("log", Batch(base, base + 9, bytes(100)))
        cache.at("log", 0)
    assert [cache.at("log", offset) is not None for offset in (0, 9, 10, 20, 29, 30)] == [
        *(True, True, False, True, True, False)
    ]
    assert cache.at("another", 0) is None


def sent(values: Values, document: Document) -> tuple[bytes | None, bool]:
    """The value as consumers receive it, and whether it fits a schema."""
    [record], fits = values.records([document])
    return record.value, fits


def test_a_deletion_is_a_tombstone_or_a_flag() -> None:
    deletion = Document(7, 1000, b"k", b'{"a":1}', deleted=True)
    kept = deletion._replace(deleted=False)
    assert sent(Values("kafka"), deletion) == (None, True)
    assert json.loads(sent(Values("cdc"), deletion)[0] or b"") == {"a": 1, "_meta": {"is_deleted": 1}}
    assert sent(Values("kafka"), kept) == (b'{"a":1}', True)


@pytest.mark.parametrize(
    ("value", "deleted", "expected"),
    [
        (b"{}", False, {"_meta": {"is_deleted": 0}}),
        (b' { "a": [1] } ', False, {"_meta": {"is_deleted": 0}, "a": [1]}),
        (b"", True, {"_meta": {"is_deleted": 1}}),
        (b'"text"', True, {"_meta": {"is_deleted": 1}}),
        (b'{"_meta":{"source":"x"},"a":1}', True, {"_meta": {"source": "x", "is_deleted": 1}, "a": 1}),
    ],
)
def test_the_flag_is_put_into_objects(value: bytes, deleted: bool, expected: object) -> None:
    assert json.loads(flagged(value, deleted)) == expected


def test_what_is_no_object_keeps_its_value() -> None:
    assert flagged(b"[1, 2]", False) == b"[1, 2]"


def test_values_as_avro_name_the_schema_that_was_in_effect_or_one_that_fits() -> None:
    fields: list[dict[str, object]] = [{"name": "a", "type": "long"}]
    with_default = {"name": "b", "type": ["null", "string"], "default": None}
    without = {"name": "c", "type": "string"}
    old, new, newest = (
        AvroSchema({"type": "record", "name": "R", "fields": [*fields, *more]})
        for more in ([], [with_default], [with_default, without])
    )
    values = Values("kafka", (Schema(4, old, 1000), Schema(7, new, 2000), Schema(9, newest, 3000)))

    def header_and_rest(timestamp: int, value: bytes) -> tuple[int, bytes]:
        record, fits = sent(values, Document(0, timestamp, None, value))
        assert record is not None
        assert fits
        return record[4], record[5:]

    assert header_and_rest(0, b'{"a":1}') == (4, b"\2")
    assert header_and_rest(1999, b'{"a":1}') == (4, b"\2")
    assert header_and_rest(2000, b'{"a":1}') == (7, b"\2\0")
    assert header_and_rest(3000, b'{"a":1}') == (7, b"\2\0")
    assert header_and_rest(1999, b'{"a":1,"b":"x"}') == (7, b"\2\2\2x")
    assert header_and_rest(0, b'{"a":1,"b":null,"c":"y"}') == (9, b"\2\0\2y")
    assert sent(values, Document(0, 0, None, b'{"d":1}')) == (b'{"d":1}', False)
    assert sent(values, Document(0, 0, b"k", b"", deleted=True)) == (None, True)
