"""Streams of NATS JetStream."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import nats as client
from nats.js import JetStreamContext

from tests import nats
from tests.e2e.matrix.ends import End, Inlet, Outlet, Record, bodies_of, parsed


class _Stream(End):
    type, servers = "nats", (nats.nats_server,)
    connection = nats.connection()

    def __init__(self) -> None:
        super().__init__()
        _with_jetstream(lambda jetstream: jetstream.add_stream(name=self.name, subjects=[f"{self.name}.>"]))


class NatsInlet(_Stream, Inlet):
    def __init__(self) -> None:
        super().__init__()
        self.options = {"stream": self.name, "consumer": "matrix"}

    def write(self, records: Sequence[Record]) -> None:
        async def publish(jetstream: JetStreamContext) -> None:
            for body in bodies_of(records):
                await jetstream.publish(f"{self.name}.records", body)

        _with_jetstream(publish)


class NatsOutlet(_Stream, Outlet):
    def __init__(self) -> None:
        super().__init__()
        self.options = {"subject": f"{self.name}.records"}

    def read(self) -> list[Record]:
        async def stored(jetstream: JetStreamContext) -> list[Record]:
            count = (await jetstream.stream_info(self.name)).state.last_seq
            messages = [await jetstream.get_msg(self.name, number) for number in range(1, count + 1)]
            return [parsed(message.data or b"") for message in messages]

        records: list[Record] = _with_jetstream(stored)
        return records


def _with_jetstream(use: Callable[[JetStreamContext], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        connected = await client.connect(f"nats://127.0.0.1:{nats.PORT}", user="headrace", password=nats.PASSWORD)
        try:
            return await use(connected.jetstream())
        finally:
            await connected.close()

    return asyncio.run(run())
