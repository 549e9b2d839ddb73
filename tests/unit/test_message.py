import pytest

from backend.domain.message import MalformedMessageError, Message, child_message_id, new_message_id, utc_now


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
