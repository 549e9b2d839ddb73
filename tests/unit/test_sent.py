"""What the outputs of each connector say that a receiver gets of a message, without connecting."""

import uuid
from typing import Any

import pytest

from backend.domain.capabilities import DeliveryError, Sent
from backend.domain.connector import RuntimeConnector, connectors
from backend.domain.message import Message, new_message_id, utc_now
from backend.domain.pipeline import OutputConfig

BODY = b'{"id": 7, "country": "BR", "gone": true, "total": 1.10}'


def sent(type: str, options: dict[str, Any], body: bytes = BODY) -> Sent:
    fields = {"name": "out", "connector": str(uuid.uuid4()), "options": options}
    connector = RuntimeConnector(type=type, connection=connectors.get(type).example)
    capability: Any = OutputConfig.model_validate(fields).bind(connector)
    message = Message(new_message_id(), "p", 1, b"k-7", body, "application/json", utc_now(), ())
    result: Sent = capability.sent(message)
    return result


TABLE = {"table": "orders"}
DOCUMENTS = {"database": "shop", "collection": "orders", "key": ["id"]}
INDEX = {"index": "orders-{{total}}", "document_id": "{{id}}"}


@pytest.mark.parametrize(
    ("type", "options", "expected"),
    [
        ("http", {"path": "/orders"}, Sent(BODY)),
        ("http", {"body": {"n": "{{id}}"}}, Sent(b'{"n":7}')),
        ("kafka", {"topic": "orders.{{country}}"}, Sent(BODY, "topic orders.BR, key k-7")),
        ("kafka", {"topic": "orders", "value": "total"}, Sent(b"1.10", "topic orders, key k-7")),
        ("kafka", {"topic": "orders", "value": "none"}, Sent(b"", "topic orders, key k-7", deletes=True)),
        ("mqtt", {"topic": "orders/{{country}}"}, Sent(BODY, "topic orders/BR")),
        ("nats", {"subject": "orders.{{country}}"}, Sent(BODY, "subject orders.BR")),
        ("rabbitmq", {"routing_key": "orders.{{country}}"}, Sent(BODY, "routing key orders.BR")),
        ("pubsub", {"topic": "orders", "ordered": True}, Sent(BODY, "ordering key k-7")),
        ("pubsub", {"topic": "orders", "ordered": False}, Sent(BODY)),
        ("kinesis", {"stream": "orders"}, Sent(BODY, "partition key k-7")),
        ("sqs", {"queue": "orders.fifo"}, Sent(BODY, "message group k-7")),
        ("sqs", {"queue": "orders"}, Sent(BODY)),
        ("redis_stream", {"stream": "orders"}, Sent(BODY)),
        (
            "redis_stream",
            {"stream": "orders", "entry": "fields"},
            Sent(b'{"id":"7","country":"BR","gone":"true","total":"1.10"}'),
        ),
        ("sql", TABLE, Sent(b'{"id":7,"country":"BR","gone":true,"total":1.10}')),
        ("sql", TABLE | {"columns": {"n": "id", "x": "none"}, "key": ["n"]}, Sent(b'{"n":7}', "row with n 7")),
        ("sql", TABLE | {"delete_when": "gone", "key": ["id"]}, Sent(b"", "row with id 7", deletes=True)),
        ("sql", TABLE | {"write": "delete", "columns": {"n": "id"}}, Sent(b'{"n":7}', deletes=True)),
        ("jdbc", TABLE | {"key": ["ID"]}, Sent(b'{"id":7,"country":"BR","gone":true,"total":1.10}', "row with id 7")),
        ("jdbc", TABLE | {"columns": {"ID": "id"}, "key": ["id"]}, Sent(b'{"ID":7}', "row with ID 7")),
        (
            "mongodb",
            DOCUMENTS | {"types": {"total": "decimal"}},
            Sent(
                b'{"id": 7, "country": "BR", "gone": true, "total": {"$numberDecimal": "1.1"}}',
                'document with {"id": 7}',
            ),
        ),
        ("mongodb", DOCUMENTS | {"delete_when": "gone"}, Sent(b"", 'document with {"id": 7}', deletes=True)),
        ("elasticsearch", INDEX, Sent(BODY, "document 7 of index orders-1.10")),
        ("elasticsearch", INDEX | {"action": "upsert"}, Sent(BODY, "document 7 of index orders-1.10")),
        (
            "elasticsearch",
            INDEX | {"delete_when": "gone"},
            Sent(b"", "document 7 of index orders-1.10", deletes=True),
        ),
        ("collection", {"key": "{{id}}", "delete_when": "gone"}, Sent(BODY, "key 7, partition 2", deletes=True)),
    ],
)
def test_it_is_what_the_receiver_gets(type: str, options: dict[str, Any], expected: Sent) -> None:
    assert sent(type, options) == expected


def test_an_address_that_depends_on_the_message_is_told() -> None:
    assert sent("http", {"path": "/orders/{{id}}"}).place.endswith("/orders/7")


@pytest.mark.parametrize(
    ("type", "options", "body", "error"),
    [
        ("kafka", {"topic": "orders.{{country}}"}, b"{}", "country"),
        ("kafka", {"topic": "orders.{{country}}"}, b'{"country": "B R"}', "cannot be part of a topic"),
        ("mqtt", {"topic": "orders/{{country}}"}, b'{"country": "a/b"}', "cannot be a part of a topic"),
        ("nats", {"subject": "orders.{{country}}"}, b'{"country": "a.b"}', "cannot be a part of a subject"),
        ("rabbitmq", {"routing_key": "{{country}}"}, b'{"country": []}', "a text, a number or a boolean is needed"),
        ("sqs", {"queue": "orders"}, b"\xff", "not text in UTF-8"),
        ("redis_stream", {"stream": "orders", "entry": "fields"}, b"[1]", "not a JSON object"),
        ("sql", TABLE, b"[1]", "another value"),
        ("sql", TABLE, b"text", "not JSON"),
        ("sql", TABLE | {"key": ["id"]}, b'{"id": null}', "no value for column id"),
        ("sql", TABLE | {"key": ["ID"]}, b'{"id": 1}', "no value for column ID"),
        ("jdbc", TABLE | {"key": ["number"]}, b'{"id": 1}', "no value for column number"),
        ("mongodb", DOCUMENTS, b'{"n": 1}', "Field id of the key is missing"),
        ("elasticsearch", INDEX, b'{"id": 1, "total": "A"}', "cannot be the name of an index"),
        ("elasticsearch", INDEX, b"[]", "has no field total"),
        ("collection", {"key": "{{id}}"}, b"{}", "id"),
    ],
)
def test_a_message_that_cannot_be_sent_is_refused_as_when_it_is_delivered(
    type: str, options: dict[str, Any], body: bytes, error: str
) -> None:
    with pytest.raises(DeliveryError) as refused:
        sent(type, options, body)
    assert error in str(refused.value)
    assert not refused.value.retryable
