"""What comes with a record, as headers, and what outputs write of it."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import encode

from backend.connectors import pubsub, rabbitmq
from backend.connectors.nats.write import _HEADER
from backend.connectors.parts.source_headers import headers_of, is_plain, passed_on, plain_texts, present
from backend.connectors.sqs import write as sqs
from backend.domain import limits
from backend.domain.message import Message, SourceHeader, source_fields

OWN = {"content-type", "message-id"}
HEADERS = st.lists(st.tuples(st.text(), st.binary() | st.none()))


def message(headers: list[SourceHeader]) -> Message:
    return Message("1", "p", 1, b"", b"1", "text/plain", "2026-02-03T04:05:06.000Z", (), source_fields("", headers))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (b"\xff", b"\xff"),
        (bytearray(b"x"), b"x"),
        ("São", "São".encode()),
        (None, None),
        (True, b"true"),
        (7, b"7"),
        (1.5, b"1.5"),
        (Decimal("1.10"), b"1.10"),
        (datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC), b"2026-02-03T04:05:06Z"),
        (datetime(2026, 2, 3, 1, 5, 6, tzinfo=timezone(timedelta(hours=-3))), b"2026-02-03T04:05:06Z"),
        ([1, b"x", {"at": datetime(2026, 2, 3, tzinfo=UTC)}], b'[1,"x",{"at":"2026-02-03T00:00:00Z"}]'),
    ],
)
def test_values_of_any_kind_become_headers(value: Any, written: bytes | None) -> None:
    assert headers_of([("name", value)]) == [("name", written)]


def test_a_value_may_be_as_deep_as_its_protocol_permits() -> None:
    value: Any = 1
    for _ in range(500):
        value = [value]
    [(_, written)] = headers_of([("deep", value)])
    assert written == b"[" * limits.DEPTH + b"null" + b"]" * limits.DEPTH


def test_properties_that_a_record_lacks_are_no_headers() -> None:
    assert present(message_id="1", reply_to=None, type="", data=b"", number=0) == [("message-id", "1"), ("number", 0)]


@given(HEADERS)
def test_an_output_passes_on_all_but_what_it_writes_itself(headers: list[SourceHeader]) -> None:
    own: list[SourceHeader] = [("Content-Type", b"x"), ("MESSAGE-ID", b"x")]
    assert passed_on(message([*own, *headers]), True) == [one for one in headers if one[0].lower() not in OWN]
    assert passed_on(message(headers), False) == []


def test_plain_text_has_no_control_characters() -> None:
    assert is_plain("São 東京 🙂\N{NO-BREAK SPACE}")
    for unfit in ("\x00", "a\nb", "\x7f", "\x85", "\ufdd0", "\uffff", "\U0010fffe"):
        assert not is_plain(unfit)
    headers: list[SourceHeader] = [("a", b"1"), ("b", None), ("", b"1"), ("c", b"\xff"), ("d", b"\n"), ("e\n", b"1")]
    assert plain_texts(headers) == [("a", "1"), ("b", "")]


@given(HEADERS)
def test_what_is_left_fits_each_protocol(headers: list[SourceHeader]) -> None:
    for name, text in pubsub._fit(headers).items():
        assert 0 < len(name.encode()) <= 256
        assert len(text.encode()) <= 1024
    assert all(value.get("StringValue") or value.get("BinaryValue") for value in sqs._fit(headers).values())
    encode.field_table(rabbitmq._headers(headers))
    assert rabbitmq._properties(headers) == {}


@pytest.mark.parametrize("name", ["", "aws.x", "Amazon.x", "a..b", ".a", "a.", "a b", "é", "x" * 257])
def test_names_that_sqs_does_not_take(name: str) -> None:
    assert sqs._fit([(name, b"x"), ("aws-x.y_1", b"x")]) == {"aws-x.y_1": {"DataType": "String", "StringValue": "x"}}


@pytest.mark.parametrize("name", ["", "Nats-Rollup", "nats-x", "a b", "a:b", "é"])
def test_names_that_nats_does_not_take(name: str) -> None:
    assert not _HEADER.fullmatch(name)
    assert _HEADER.fullmatch("x-nats-1")


@pytest.mark.parametrize("name", ["CC", "bcc", "x-death", "x-first-death-queue", "x-delay", "x" * 256, "é" * 128])
def test_headers_by_which_rabbitmq_routes(name: str) -> None:
    assert rabbitmq._headers([(name, b"x"), ("x-tenant", b"a"), ("x-tenant", b"\xff"), ("none", None)]) == {
        "x-tenant": b"\xff",
        "none": None,
    }


@pytest.mark.parametrize(
    ("name", "value", "properties"),
    [
        ("correlation-id", b"1", {"correlation_id": "1"}),
        ("reply-to", b"answers", {"reply_to": "answers"}),
        ("reply-to", b"amq.rabbitmq.reply-to", {}),
        ("type", b"\xff", {}),
        ("app-id", b"x" * 256, {}),
        ("timestamp", b"2026-02-03T04:05:06Z", {"timestamp": datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)}),
        ("timestamp", b"2026-02-03T04:05:06", {}),
        ("timestamp", b"1960-02-03T04:05:06Z", {}),
        ("timestamp", b"0001-01-01T00:00:00+14:00", {}),
        ("timestamp", b"yesterday", {}),
    ],
)
def test_properties_of_rabbitmq(name: str, value: bytes, properties: dict[str, Any]) -> None:
    assert rabbitmq._properties([(name, value)]) == properties
