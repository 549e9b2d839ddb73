"""JSON as BSON and back, through pymongo's encoder."""

import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from bson import Binary, DatetimeMS, Decimal128, Int64, ObjectId, Regex, Timestamp, decode, encode
from bson.codec_options import CodecOptions, DatetimeConversion
from hypothesis import given
from hypothesis import strategies as st

from backend.connectors.mongodb.documents import (
    UnfitDocumentError,
    from_extended,
    from_json,
    plain_text,
    to_extended,
    to_json,
)
from backend.domain import json

CODEC: CodecOptions[Any] = CodecOptions(tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO)
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**25), max_value=10**25)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=10,
)


def stored(body: bytes, form: Any = "plain", **types: Any) -> dict[str, Any]:
    """What MongoDB has of that JSON."""
    document = from_json(body, form, {tuple(path.split("__")): kind for path, kind in types.items()})
    return decode(encode(document), CODEC)


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_plain_json_is_kept(document: dict[str, Any]) -> None:
    body = json.dumps(document)
    assert json.loads(to_json(stored(body), "plain")) == json.loads(body)


def test_numbers_are_doubles_where_these_say_the_same() -> None:
    document = stored(
        b'{"a": 0.1, "b": 1e300, "c": 12345678901234567890.123456789, "d": 18446744073709551617, "e": 1.10}'
    )
    assert document == {
        "a": 0.1,
        "b": 1e300,
        "c": Decimal128("12345678901234567890.123456789"),
        "d": Decimal128("18446744073709551617"),
        "e": 1.1,
    }


@pytest.mark.parametrize(
    "body", [b"[1]", b"1", b"{", b"null", b'{"a": 1234567890123456789012345678901234.5678}', b'{"a": 1e99999}']
)
def test_what_is_no_document_is_refused(body: bytes) -> None:
    with pytest.raises(UnfitDocumentError, match=r"\.$"):
        from_json(body, "plain", {})


@pytest.mark.parametrize(
    "body", [b'{"a": {"$oid": "x"}}', b'{"a": {"$date": "soon"}}', b'{"$oid": "000000000000000000000000"}', b"[]"]
)
def test_what_is_no_extended_json_is_refused(body: bytes) -> None:
    with pytest.raises(UnfitDocumentError, match=r"\.$"):
        from_json(body, "extended", {})


def test_fields_have_the_types_they_are_told() -> None:
    number = ObjectId()
    body = json.dumps({"at": "2026-10-25T02:30:00+02:00", "local": "2026-01-01", "o": {"id": str(number)}, "p": "1.10"})
    types = {"at": "date", "local": "date", "o__id": "object_id", "p": "decimal", "missing": "date"}
    assert stored(body, **types) == {
        "at": datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
        "local": datetime(2026, 1, 1, tzinfo=UTC),
        "o": {"id": number},
        "p": Decimal128("1.10"),
    }
    assert stored(b'{"p": 5, "q": 0.1}', p="decimal", q="decimal") == {"p": Decimal128("5"), "q": Decimal128("0.1")}
    for bad in (b'{"p": true}', b'{"p": "x"}', b'{"p": []}'):
        with pytest.raises(UnfitDocumentError, match="Field p cannot be stored as decimal"):
            stored(bad, p="decimal")


EVERY_TYPE: dict[str, Any] = {
    "object_id": ObjectId("0" * 24),
    "at": datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC),
    "before": datetime(1, 1, 1, tzinfo=UTC),
    "far": DatetimeMS(10**15),
    "decimal": Decimal128("1.10"),
    "no_number": Decimal128("NaN"),
    "long": Int64(2**62),
    "infinite": float("inf"),
    "bytes": b"\0\1",
    "uuid": Binary.from_uuid(uuid.UUID(int=1)),
    "regex": Regex("a", "i"),
    "timestamp": Timestamp(1, 2),
    "text": "é\0",
}


def test_every_type_has_a_form_in_plain_json() -> None:
    assert json.loads(to_json(decode(encode(EVERY_TYPE), CODEC), "plain")) == {
        "object_id": "0" * 24,
        "at": "2026-01-31T12:00:00.123Z",
        "before": "0001-01-01T00:00:00.000Z",
        "far": {"$date": {"$numberLong": "1000000000000000"}},
        "decimal": Decimal("1.10"),
        "no_number": "NaN",
        "long": 2**62,
        "infinite": "inf",
        "bytes": "AAE=",
        "uuid": "00000000-0000-0000-0000-000000000001",
        "regex": {"$regularExpression": {"pattern": "a", "options": "i"}},
        "timestamp": {"$timestamp": {"t": 1, "i": 2}},
        "text": "é\0",
    }


def test_extended_json_keeps_every_type() -> None:
    document = decode(encode(EVERY_TYPE), CODEC)
    body = to_json(document, "extended")
    assert decode(encode(from_json(body, "extended", {})), CODEC) == document
    for value in document.values():
        assert decode(encode({"v": from_extended(json.loads(json.dumps(to_extended(value))))}), CODEC)["v"] == value


def test_a_key_is_text() -> None:
    assert [plain_text(value) for value in (ObjectId("0" * 24), 5, "x", {"a": 1})] == ["0" * 24, "5", "x", '{"a":1}']
