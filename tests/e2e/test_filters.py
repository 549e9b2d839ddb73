"""Pipelines that subscribe to others' indexed messages."""

import json
import time
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
    wanted = json.dumps(condition)
    pairs = zip(list(inbox.headers), list(inbox.bodies), strict=False)
    return sorted(json.loads(body)["n"] for headers, body in pairs if headers.get("X-Filter") == wanted)


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
    installation.accepted(adapted, [{"n": 10 + found["n"], "o": found["order"]} for found in ORDERS])
    wait_until(lambda: received_by(inbox, BR) == [1, 2, 11, 12] and received_by(inbox, DEAR) == [2, 4, 12, 14], 60)
    time.sleep(1)
    assert (received_by(inbox, BR), received_by(inbox, DEAR)) == ([1, 2, 11, 12], [2, 4, 12, 14])
    assert max(ids(inbox).values()) == 1  # each subscriber's message has an id of its own
    for headers, body in zip(inbox.headers, inbox.bodies, strict=True):
        assert ("source" in json.loads(body)) == (headers["X-Filter"] == json.dumps(DEAR))


def test_a_subscription_is_in_force_and_ends_within_a_second(installation: Installation, inbox: Receiver) -> None:
    source = published(installation, {"index": INDEX, "outputs": []})
    wait_until(lambda: installation.post(source, order(0, "BR", 1))[0] == 202)
    subscriber = subscribed(installation, inbox.url, BR)
    time.sleep(1)
    installation.accepted(source, [order(1, "BR", 1)])
    wait_until(lambda: 1 in received_by(inbox, BR))
    installation.create(f"pipelines/{subscriber}/pause/", {})
    time.sleep(1)
    installation.accepted(source, [order(2, "BR", 1)])
    installation.create(f"pipelines/{subscriber}/resume/", {})
    time.sleep(1)
    installation.accepted(source, [order(3, "BR", 1)])
    wait_until(lambda: 3 in received_by(inbox, BR))
    assert 2 not in received_by(inbox, BR)


def test_subscribers_that_subscribe_to_each_other_do_not_turn_in_circles(
    installation: Installation, inbox: Receiver
) -> None:
    circle = {"type": "equals", "field": "country", "value": "XX"}
    for _ in range(2):
        subscribed(installation, inbox.url, circle, index=INDEX)
    source = published(installation, {"index": INDEX, "outputs": []})
    wait_until(lambda: installation.post(source, order(0, "PT", 1))[0] == 202)
    time.sleep(1)
    installation.accepted(source, [order(1, "XX", 1)])
    # Each once from the source, and once by way of the other.
    wait_until(lambda: len(inbox.bodies) >= 4)
    time.sleep(2)
    assert received_by(inbox, circle) == [1, 1, 1, 1]


def test_what_is_filtered_cannot_be_posted_to(installation: Installation, inbox: Receiver) -> None:
    subscriber = subscribed(installation, inbox.url, BR)
    wait_until(lambda: installation.post(subscriber, {})[0] == 409)
