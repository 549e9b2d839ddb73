"""The connection to a Kafka Connect cluster; what is done with it: tests/integration/sql."""

import socket
from typing import Any

import pytest
from aiohttp import web

from backend.connectors.kafka_connect.client import ConnectClient, ConnectError
from backend.connectors.kafka_connect.connection import KafkaConnectConnection
from backend.domain.connector import CheckFailedError, check_connection, connectors
from backend.network import outbound
from tests.infra import Server
from tests.integration.connectors.suites import Reaching
from tests.kafka_connect import FILE_SOURCE, URL, kafka_connect
from tests.receiver import receiver

__all__ = ["kafka_connect"]


class TestKafkaConnect(Reaching):
    type = "kafka_connect"

    def unreachable(self) -> dict[str, Any]:
        return {"url": "http://127.0.0.1:1"}


async def checked(**connection: Any) -> str:
    type = connectors.get("kafka_connect")
    return await check_connection(type, type.connection_model.model_validate(connection))


async def test_a_worker_is_found(kafka_connect: Server) -> None:
    assert await checked(url=URL) == "Connected to Kafka Connect 4.1.1; it has 2 classes of connectors."


async def test_its_classes_can_be_listed_and_validated(kafka_connect: Server) -> None:
    client = ConnectClient(KafkaConnectConnection.model_validate({"url": URL}))
    try:
        assert FILE_SOURCE in {plugin["class"] for plugin in await client.plugins()}
        configs = await client.validate(FILE_SOURCE, {"connector.class": FILE_SOURCE, "name": "x"})
        errors = {config["value"]["name"]: config["value"]["errors"] for config in configs}
        assert errors["topic"]
        with pytest.raises(ConnectError, match=r"refuses: .*nothing-here") as caught:
            await client.status("nothing-here")
        assert caught.value.status == 404
    finally:
        await client.close()


async def test_an_address_where_nothing_listens_is_named_with_the_reason() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(CheckFailedError, match=f"Kafka Connect at {url} cannot be reached: .+") as caught:
            await checked(url=url)
    assert caught.value.field == "url"


@pytest.mark.parametrize(
    ("status", "text", "sentence", "field"),
    [
        (200, "<html>", "is no Kafka Connect worker", "url"),
        (200, "{}", "is no Kafka Connect worker", "url"),
        (401, "no", "does not accept the credentials", "authentication"),
        (502, "<html>Bad", "says 502", "url"),
        (500, '{"error_code": 500, "message": "It broke at t0ken"}', r"refuses: It broke at \*{8}\.", "url"),
    ],
)
async def test_what_is_no_worker_is_told_from_one_that_refuses(
    status: int, text: str, sentence: str, field: str
) -> None:
    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer t0ken"
        return web.Response(status=status, text=text)

    async with receiver(answer) as running:
        with pytest.raises(CheckFailedError, match=sentence) as caught:
            await checked(url=running.url, authentication={"type": "bearer", "token": "t0ken"})
    assert caught.value.field == field


async def test_an_address_of_the_operators_network_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.network.http_client.outbound_policy", outbound.OutboundPolicy)
    with pytest.raises(CheckFailedError, match="not an address of the public internet"):
        await checked(url="http://127.0.0.1:8083")


def test_an_address_holds_no_credentials() -> None:
    with pytest.raises(ValueError, match="neither user name nor password"):
        KafkaConnectConnection.model_validate({"url": "http://user:word@example.com"})
