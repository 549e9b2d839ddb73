"""Pipelines that subscribe to others' indexed messages."""

import json
import time
from collections import Counter
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
    return {"n": n, "order": {"country": country, "total": total}}


ORDERS = [order(1, "BR", 10), order(2, "BR", 100), order(3, "AR", 200), order(4, "PT", 100.5), order(5, "PT", 99.99)]


def test_each_subscriber_gets_what_its_filter_takes(installation: Installation, inbox: Receiver) -> None:
    set_source = [{"type": "set", "path": "source", "value": "filtered"}]
    subscribed(installation, inbox.url, BR)
    subscribed(installation, inbox.url, DEAR, transforms=set_source)
    plain = published(installation, {"index": INDEX, "outputs": []})
    adapted = published(installation, {"index": INDEX, "transforms": [{"type": "rename", "path": "o", "to": "order"}]})
    wait_until(lambda: installation.post(plain, {})[0] == installation.post(adapted, {})[0] == 202)
    installation.accepted(plain, ORDERS)
    installation.accepted(adapted, [{"n": 10 + sent["n"], "o": sent["order"]} for sent in ORDERS])
    wait_until(lambda: received_by(inbox, BR) == [1, 2, 11, 12] and received_by(inbox, DEAR) == [2, 4, 12, 14])
    time.sleep(1)
    assert (received_by(inbox, BR), received_by(inbox, DEAR)) == ([1, 2, 11, 12], [2, 4, 12, 14])
    assert max(ids(inbox).values()) == 1  # each subscriber's message has an id of its own
    for headers, body in zip(inbox.headers, inbox.bodies, strict=True):
        assert ("source" in json.loads(body)) == (headers["X-Filter"] == json.dumps(DEAR))


def test_a_subscription_is_in_force_and_ends_within_a_second(installation: Installation, inbox: Receiver) -> None:
    source = published(installation, {"index": INDEX, "outputs": []})
    wait_until(lambda: installation.post(source, order(0, "BR", 1))[0] == 202)
    subscribed(installation, inbox.url, ALSO_BR)
    subscriber = subscribed(installation, inbox.url, BR)
    numbers = iter(range(1, 1000))

    def arrives(condition: dict[str, Any]) -> bool:
        """Whether one more message has come within a second."""
        installation.accepted(source, [order(number := next(numbers), "BR", 1)])
        time.sleep(1)
        return number in received_by(inbox, condition)

    wait_until(lambda: arrives(ALSO_BR) and arrives(BR))
    installation.create(f"pipelines/{subscriber}/pause/", {})
    wait_until(lambda: not arrives(BR) and not arrives(BR))
    missed = next(numbers)
    installation.accepted(source, [order(missed, "BR", 1)])
    wait_until(lambda: missed in received_by(inbox, ALSO_BR))
    installation.create(f"pipelines/{subscriber}/resume/", {})
    wait_until(lambda: arrives(BR))
    assert missed not in received_by(inbox, BR)


def test_subscribers_that_subscribe_to_each_other_do_not_turn_in_circles(
    installation: Installation, inbox: Receiver
) -> None:
    circle = {"type": "equals", "field": "country", "value": "XX"}
    for _ in range(2):
        subscribed(installation, inbox.url, circle, index=INDEX)
    source = published(installation, {"index": INDEX, "outputs": []})
    wait_until(lambda: installation.post(source, order(0, "PT", 1))[0] == 202)
    numbers = iter(range(1, 1000))

    def all_are_in_force() -> bool:
        """Whether of one more message four come: each once from the source, and once by way of the other."""
        installation.accepted(source, [order(number := next(numbers), "XX", 1)])
        time.sleep(2)
        return received_by(inbox, circle).count(number) >= 4

    wait_until(all_are_in_force)
    time.sleep(2)
    counts = Counter(received_by(inbox, circle))
    assert set(counts.values()) <= {1, 2, 3, 4}
    assert counts[max(counts)] == 4


def test_what_is_filtered_cannot_be_posted_to(installation: Installation, inbox: Receiver) -> None:
    subscriber = subscribed(installation, inbox.url, BR)
    wait_until(lambda: installation.post(subscriber, {})[0] == 409)
