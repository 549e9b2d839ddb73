"""Pipelines that subscribe to others' indexed messages."""

import json
from collections import Counter
from itertools import count
from typing import Any

from tests.e2e.test_messages import ids, name
from tests.installation import Installation
from tests.receiver import Receiver
from tests.waiting import wait_until

INDEX = [
    {"name": "country", "path": "order.country"},
    {"name": "total", "path": "order.total", "type": "number"},
]
BR = {"type": "equals", "field": "country", "value": "BR"}
ALSO_BR = {"type": "in", "field": "country", "values": ["BR"]}
DEAR = {
    "type": "all",
    "conditions": [
        {"type": "greater_or_equal", "field": "total", "value": 100},
        {"type": "not", "condition": {"type": "in", "field": "country", "values": ["AR"]}},
    ],
}


def published(installation: Installation, config: dict[str, Any]) -> str:
    pipeline = installation.create("pipelines/", {"name": name(), "config": config})
    installation.create(f"pipelines/{pipeline['id']}/publish/", {})
    return str(pipeline["id"])


def subscribed(installation: Installation, url: str, condition: dict[str, Any], **config: Any) -> str:
    connector = installation.create("connectors/", {"name": name(), "type": "http", "connection": {"url": url}})
    output = {"name": "out", "connector": connector["id"], "options": {"headers": {"X-Filter": json.dumps(condition)}}}
    return published(installation, {"input": {"type": "filter", "condition": condition}, "outputs": [output], **config})


def received_by(inbox: Receiver, condition: dict[str, Any]) -> list[Any]:
    expected = json.dumps(condition)
    pairs = zip(list(inbox.headers), list(inbox.bodies), strict=False)
    return sorted(json.loads(body)["n"] for headers, body in pairs if headers.get("X-Filter") == expected)


def order(n: int, country: str, total: float) -> dict[str, Any]:
    return {"n": n, "key": "one", "order": {"country": country, "total": total}}


IN_ORDER = {"type": "http", "ordering_key": "key"}
"""Messages overtake none before them: once the last has come, all that ever come are there."""
ORDERS = [order(1, "BR", 10), order(2, "BR", 100), order(3, "AR", 200), order(4, "PT", 100.5), order(5, "PT", 99.99)]
LAST = order(6, "BR", 100)
"""Every subscriber gets this one."""


def test_each_subscriber_gets_what_its_filter_takes(installation: Installation, inbox: Receiver) -> None:
    set_source = [{"type": "set", "path": "source", "value": "filtered"}]
    subscribed(installation, inbox.url, BR)
    subscribed(installation, inbox.url, DEAR, transforms=set_source)
    plain = published(installation, {"input": IN_ORDER, "index": INDEX, "outputs": []})
    renamed = [{"type": "rename", "path": "o", "to": "order"}]
    adapted = published(installation, {"input": IN_ORDER, "index": INDEX, "transforms": renamed})
    wait_until(lambda: installation.post(plain, {})[0] == installation.post(adapted, {})[0] == 202)
    sent = [*ORDERS, LAST]
    installation.accepted(plain, sent)
    installation.accepted(adapted, [{"n": 10 + one["n"], "key": one["key"], "o": one["order"]} for one in sent])
    wait_until(lambda: all({6, 16} <= set(received_by(inbox, condition)) for condition in (BR, DEAR)))
    assert (received_by(inbox, BR), received_by(inbox, DEAR)) == ([1, 2, 6, 11, 12, 16], [2, 4, 6, 12, 14, 16])
    assert max(ids(inbox).values()) == 1  # each subscriber's message has an id of its own
    for headers, body in zip(inbox.headers, inbox.bodies, strict=True):
        assert ("source" in json.loads(body)) == (headers["X-Filter"] == json.dumps(DEAR))


def test_a_subscription_is_in_force_once_published_and_ends_once_paused(
    installation: Installation, inbox: Receiver
) -> None:
    source = published(installation, {"input": IN_ORDER, "index": INDEX, "outputs": []})
    wait_until(lambda: installation.post(source, order(0, "BR", 1))[0] == 202)
    subscribed(installation, inbox.url, ALSO_BR)
    subscriber = subscribed(installation, inbox.url, BR)
    numbers = count(1)

    def sent() -> int:
        installation.accepted(source, [order(number := next(numbers), "BR", 1)])
        return number

    def sent_and_come_to_the_other() -> int:
        number = sent()
        wait_until(lambda: number in received_by(inbox, ALSO_BR))
        return number

    def has_ended() -> bool:
        """Whether what came to the other one some messages ago has not come to this one."""
        first, *_ = [sent_and_come_to_the_other() for _ in range(5)]
        return first not in received_by(inbox, BR)

    wait_until(lambda: sent() and received_by(inbox, ALSO_BR) and received_by(inbox, BR), interval=0.5)
    installation.create(f"pipelines/{subscriber}/pause/", {})
    wait_until(has_ended)
    missed = sent_and_come_to_the_other()
    installation.create(f"pipelines/{subscriber}/resume/", {})
    wait_until(lambda: sent() and max(received_by(inbox, BR)) > missed, interval=0.5)
    assert missed not in received_by(inbox, BR)


def test_subscribers_that_subscribe_to_each_other_do_not_turn_in_circles(
    installation: Installation, inbox: Receiver
) -> None:
    circle = {"type": "equals", "field": "country", "value": "XX"}
    for _ in range(2):
        subscribed(installation, inbox.url, circle, index=INDEX)
    source = published(installation, {"input": IN_ORDER, "index": INDEX, "outputs": []})
    wait_until(lambda: installation.post(source, order(0, "PT", 1))[0] == 202)
    numbers = count(1)

    def sent() -> int:
        installation.accepted(source, [order(number := next(numbers), "XX", 1)])
        return number

    def counts() -> Counter[int]:
        return Counter(received_by(inbox, circle))

    def sent_and_come() -> int:
        number = sent()
        wait_until(lambda: counts()[number] >= 4)
        return number

    # Both are in force once of one message four come: each once from the source, and once by way of the other.
    wait_until(lambda: sent() and max(counts().values(), default=0) >= 4, interval=0.5)
    after = [sent_and_come() for _ in range(3)]
    # The first of these would have come a fifth time before the last one has come four times.
    assert set(counts().values()) <= {1, 2, 3, 4}
    assert counts()[after[0]] == 4


def test_what_is_filtered_cannot_be_posted_to(installation: Installation, inbox: Receiver) -> None:
    subscriber = subscribed(installation, inbox.url, BR)
    wait_until(lambda: installation.post(subscriber, {})[0] == 409)
