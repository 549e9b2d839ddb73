"""Queues of RabbitMQ."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel

from tests import rabbitmq
from tests.e2e.matrix.ends import End, Inlet, Outlet, Record, bodies_of, parsed


class _Queue(End):
    type, servers = "rabbitmq", (rabbitmq.port_mapper, rabbitmq.rabbitmq_server)
    connection = {
        "host": "127.0.0.1", "port": rabbitmq.PORT, "username": rabbitmq.USER, "password": rabbitmq.PASSWORD,
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        _on_channel(lambda channel: channel.declare_queue(self.name, durable=True))


class RabbitmqInlet(_Queue, Inlet):
    def __init__(self) -> None:
        super().__init__()
        self.options = {"queue": self.name}

    def write(self, records: Sequence[Record]) -> None:
        async def publish(channel: AbstractChannel) -> None:
            for body in bodies_of(records):
                await channel.default_exchange.publish(aio_pika.Message(body), self.name)

        _on_channel(publish)


class RabbitmqOutlet(_Queue, Outlet):
    def __init__(self) -> None:
        super().__init__()
        self.options = {"routing_key": self.name}
        self._records: list[Record] = []

    def read(self) -> list[Record]:
        async def take(channel: AbstractChannel) -> None:
            queue = await channel.get_queue(self.name)
            while (message := await queue.get(no_ack=True, fail=False)) is not None:
                self._records.append(parsed(message.body))

        _on_channel(take)
        return self._records


def _on_channel(use: Callable[[AbstractChannel], Awaitable[Any]]) -> None:
    async def run() -> None:
        async with await aio_pika.connect(rabbitmq.URL) as connected:
            await use(await connected.channel())

    asyncio.run(run())
