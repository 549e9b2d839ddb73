import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain import limits, message_templates
from backend.domain.limits import TooLargeError
from backend.domain.message import (
    MalformedMessageError,
    Message,
    SourceHeader,
    child_message_id,
    new_message_id,
    source_fields,
    utc_now,
)
from backend.domain.message_templates import TemplateSource


def message(**changes: object) -> Message:
    fields = {
        "id": new_message_id(),
        "pipeline_id": "p",
        "version": 3,
        "key": b"k",
        "body": b"{}",
        "content_type": "application/json",
        "received_at": utc_now(),
        "slip": ("firehose_filter", "firehose_adapted"),
        "extra": {"traceparent": "00-1"},
    }
    return Message(**(fields | changes))  # type: ignore[arg-type]


def test_headers_carry_the_whole_message() -> None:
    sent = message()
    assert Message.from_kafka(key=sent.key, value=sent.body, headers=sent.headers()) == sent


@given(st.text(), st.lists(st.tuples(st.text(), st.binary() | st.none())))
def test_what_came_with_a_record_travels_unchanged(source: str, headers: list[SourceHeader]) -> None:
    sent = message(extra=source_fields(source, headers))
    read = Message.from_kafka(key=sent.key, value=sent.body, headers=sent.headers())
    assert (read.source, read.source_headers()) == (source, headers)


def test_headers_of_a_record_have_a_limit() -> None:
    with pytest.raises(TooLargeError, match="headers"):
        source_fields("", [("name", b"x" * limits.SOURCE_HEADERS_BYTES)])


def test_templates_have_what_came_with_a_record() -> None:
    read = message(
        extra=source_fields("orders", [("tenant", b"a"), ("tenant", b"b"), ("x.y", b"\xff"), ("null", None)])
    )
    template = "{{$message.source}}/{{$message.headers.tenant}}/{{/$message/headers/x.y}}/{{$message.headers.null}}"
    assert message_templates.compile_text(message_templates.check(template))(TemplateSource(read)) == "orders/b/\ufffd/"
    for unknown in ("{{$message.headers}}", "{{$message.headers.a.b}}", "{{$message.sources}}"):
        with pytest.raises(ValueError, match=r"\$message\.headers\.NAME"):
            message_templates.check(unknown)


def test_the_slip_is_used_up_step_by_step() -> None:
    topic, moved = message().advanced()
    assert (topic, moved.slip) == ("firehose_filter", ("firehose_adapted",))
    topic, moved = moved.advanced()
    assert (topic, moved.slip) == ("firehose_adapted", ())
    with pytest.raises(MalformedMessageError):
        moved.advanced()


@pytest.mark.parametrize("missing", ["pipeline", "version", "message-id", "routing-slip"])
def test_a_record_without_a_header_is_refused(missing: str) -> None:
    headers = [(name, value) for name, value in message().headers() if name != missing]
    with pytest.raises(MalformedMessageError, match=missing):
        Message.from_kafka(key=None, value=b"", headers=headers)


def test_children_get_the_same_ids_on_a_repeat() -> None:
    parent = new_message_id()
    assert child_message_id(parent, 1) == child_message_id(parent, 1) != child_message_id(parent, 2)
