"""Proxies in the console."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from tests.integration.kafka_proxy.clients import received, send, values
from tests.kafka_proxies import Proxies
from tests.ports import free_ports
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db

URL = "/api/v1/kafka-proxies/"


def test_each_proxy_with_its_brokers_and_clients(client: APIClient, settings: Any, racked: Proxies, topic: str) -> None:
    gone = f"http://127.0.0.1:{free_ports(1)[0]}"
    urls = [*(proxy.operations for proxy in racked), gone]
    settings.CONSOLE = settings.CONSOLE.model_copy(update={"kafka_proxies": ",".join(urls)})
    send(racked.bootstrap, topic, values(500), **{"client.id": "a-producer"})
    received(racked.bootstrap, topic, 500)

    def shown() -> list[dict[str, Any]]:
        answer = client.get(URL)
        assert answer.status_code == 200, answer.json()
        return list(answer.json())

    def is_flowing() -> bool:
        statuses = [proxy["status"] for proxy in shown() if proxy["status"]]
        return any(client["requests_per_second"] > 0 for status in statuses for client in status["clients"])

    wait_until(is_flowing)
    *available, missing = shown()
    assert [proxy["url"] for proxy in available] == urls[:3]
    assert missing == {"url": gone, "status": None, "error": "It does not answer; is the process running?"}
    for number, proxy in enumerate(available):
        status = proxy["status"]
        assert status["local"] == 100 + number
        assert [node["is_up"] for node in status["nodes"]] == [True] * 3
        stands_for = {broker["rack"]: broker["proxy"] for broker in status["brokers"]}
        assert stands_for in ({}, {"rack1": 100, "rack2": 101, "rack3": 102})
    names = {c["name"] for proxy in available for c in proxy["status"]["clients"]}
    assert "a-producer" in names


def test_without_proxies_the_list_is_empty(client: APIClient) -> None:
    assert client.get(URL).json() == []
