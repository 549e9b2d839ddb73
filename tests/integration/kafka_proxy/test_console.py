"""Proxies in the console."""

from typing import Any

import pytest
from confluent_kafka import Producer
from rest_framework.test import APIClient

from backend.apps.kafka_proxies import selectors
from tests.kafka_proxies import Proxies
from tests.ports import free_ports
from tests.waiting import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.django_db

URL = "/api/v1/kafka-proxies/"


def test_each_proxy_with_its_brokers_and_clients(
    client: APIClient, settings: Any, racked: Proxies, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selectors, "_SECONDS", LIMIT_SECONDS)
    gone = f"http://127.0.0.1:{free_ports(1)[0]}"
    urls = [*(proxy.operations for proxy in racked), gone]
    settings.CONSOLE = settings.CONSOLE.model_copy(update={"kafka_proxies": ",".join(urls)})
    producer = Producer({"bootstrap.servers": racked.bootstrap, "client.id": "a-producer"})
    shown: list[dict[str, Any]] = []

    def all_are_up_and_records_flow() -> bool:
        # A rate is shown for seconds only, so the records go on until it is seen.
        producer.produce(topic, b"record")
        assert producer.flush(LIMIT_SECONDS) == 0
        answer = client.get(URL)
        assert answer.status_code == 200, answer.json()
        shown[:] = answer.json()
        statuses = [proxy["status"] for proxy in shown if proxy["status"]]
        rates = [client["requests_per_second"] for status in statuses for client in named(status, "a-producer")]
        return sum(rates) > 0 and all(node["is_up"] for status in statuses for node in status["nodes"])

    wait_until(all_are_up_and_records_flow, explain=lambda: shown)
    *available, missing = shown
    assert [proxy["url"] for proxy in available] == urls[:3]
    assert missing == {"url": gone, "status": None, "error": "It does not answer; is the process running?"}
    for number, proxy in enumerate(available):
        status = proxy["status"]
        assert status["local"] == 100 + number
        assert len(status["nodes"]) == 3
        stands_for = {broker["rack"]: broker["proxy"] for broker in status["brokers"]}
        assert stands_for in ({}, {"rack1": 100, "rack2": 101, "rack3": 102})


def named(status: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [client for client in status["clients"] if client["name"] == name]


def test_without_proxies_the_list_is_empty(client: APIClient) -> None:
    assert client.get(URL).json() == []
