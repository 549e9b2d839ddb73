"""The Kafka connector, against a real broker."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.domain.message import new_message_id
from tests import infra
from tests.infra import KAFKA
from tests.integration.connectors.suites import DeliverSuite, Server


class Topic(Server):
    async def delivered(self) -> list[bytes]:
        return await asyncio.to_thread(self._read)

    def _read(self) -> list[bytes]:
        partition = TopicPartition(self.options["topic"], 0, 0)
        consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": new_message_id(), "enable.partition.eof": True})
        consumer.assign([partition])
        bodies: list[bytes] = []
        with closing(consumer):
            while (record := consumer.poll(30)) is not None and record.error() is None:
                bodies.append(record.value())  # type: ignore[arg-type]
        return bodies


@pytest.mark.usefixtures("kafka")
class TestKafka(DeliverSuite):
    type = "kafka"

    @pytest.fixture(autouse=True)
    def _broker(self, kafka: infra.Server) -> None:
        """Runs before every test of the suite."""

    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Server]:
        topic = f"connector-{new_message_id()}"
        if hangs:
            with socket.create_server(("127.0.0.1", 0)) as silent:
                port = silent.getsockname()[1]
                yield Topic({"bootstrap_servers": f"127.0.0.1:{port}"}, {"topic": topic})
            return
        admin = AdminClient({"bootstrap.servers": KAFKA})
        await asyncio.to_thread(admin.create_topics([NewTopic(topic, 1, 1)])[topic].result)
        yield Topic({"bootstrap_servers": KAFKA}, {"topic": topic})

    def unreachable(self) -> dict[str, Any]:
        security = {"type": "sasl", "username": "u", "password": "planted-password-of-kafka", "tls": False}
        return {"bootstrap_servers": "127.0.0.1:1", "security": security}
