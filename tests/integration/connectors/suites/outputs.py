"""For the capabilities ``deliver`` and ``deliver_batch``."""

import asyncio
import uuid
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from backend.delivery.client import DeliveryClient
from backend.domain.capabilities import Deliver, DeliverBatch, DeliveryError
from backend.domain.connector import RuntimeConnector
from backend.domain.pipeline import OutputConfig, RuntimeOutput
from backend.ingest.requests import MAX_BODY_BYTES
from tests.integration.connectors.suites.common import Reaching, forbid_every_address, hides_secrets, message
from tests.waiting import LIMIT_SECONDS

_ATTEMPT_SECONDS = 120
"""Unless a test is about the limit. An emulator on a busy machine needs longer than the default for a large batch."""


@dataclass
class Server:
    """A real server that a connector delivers to."""

    connection: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)
    registered: dict[str, Any] = field(default_factory=dict)
    """What ``Register`` made for the output."""

    async def delivered(self) -> list[bytes]:
        """The bodies of all messages that arrived, in any order."""
        return self.bodies


class _Outputs(Reaching):
    batch: dict[str, Any] | None = None
    takes_the_largest = True
    """Whether the system takes a message as large as ingest does."""

    @abstractmethod
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Server]:
        """A server that works, or one that accepts connections and never answers."""
        yield Server({})

    def client(
        self,
        connection: dict[str, Any],
        options: dict[str, Any],
        registered: dict[str, Any] | None = None,
        **config: Any,
    ) -> DeliveryClient:
        fields = {
            "name": "out",
            "connector": str(uuid.uuid4()),
            "options": options,
            "batch": self.batch,
            "timeout_seconds": _ATTEMPT_SECONDS,
            **config,
        }
        output = OutputConfig.model_validate(fields)
        made = {output.place: registered} if registered else {}
        runtime = RuntimeConnector(type=self.type, connection=connection, registered=made)
        return DeliveryClient(RuntimeOutput(connector=runtime, config=output))

    def client_of(self, server: Server, **config: Any) -> DeliveryClient:
        return self.client(server.connection, server.options, server.registered, **config)

    async def test_it_delivers_many_at_the_same_time(self) -> None:
        async with self.server() as server:
            client = self.client_of(server)
            bodies = [b'{"n": %d, "text": "S\xc3\xa3o Paulo"}' % number for number in range(50)]
            await asyncio.gather(*(client.deliver_one(message(body)) for body in bodies))
            await client.close()
            assert sorted(await server.delivered()) == sorted(bodies)

    async def test_neighbours_8_the_largest_message_is_delivered(self) -> None:
        body = b'{"n": 1, "text": "%s"}'
        body %= b"x" * (MAX_BODY_BYTES + 2 - len(body))
        assert len(body) == MAX_BODY_BYTES
        async with self.server() as server:
            client = self.client_of(server)
            if self.takes_the_largest:
                await client.deliver_one(message(body))
            else:
                with pytest.raises(DeliveryError) as refused:
                    await client.deliver_one(message(body))
                assert (refused.value.retryable, refused.value.about_message) == (False, True)
            await client.deliver_one(message(b'{"n": 2}'))
            await client.close()
            expected = [body, b'{"n": 2}'] if self.takes_the_largest else [b'{"n": 2}']
            assert sorted(await server.delivered()) == sorted(expected)

    async def test_nobody_there_is_a_transient_fault_without_secrets(self) -> None:
        connection = self.unreachable()
        client = self.client(connection, await self._options(), timeout_seconds=20)
        with pytest.raises(DeliveryError) as failed:
            await client.deliver_one(message())
        await client.close()
        assert failed.value.retryable
        self._hides_secrets(connection, str(failed.value) + failed.value.response)

    async def test_a_server_that_hangs_is_cut_off(self) -> None:
        async with self.server(hangs=True) as server:
            client = self.client_of(server, timeout_seconds=1)
            async with asyncio.timeout(LIMIT_SECONDS):
                with pytest.raises(DeliveryError) as failed:
                    await client.deliver_one(message())
                assert failed.value.retryable
                await client.close()

    async def test_it_closes_without_having_delivered_and_twice_in_a_row(self) -> None:
        async with self.server() as server:
            for _ in range(2):
                await self.client_of(server).close()

    async def test_its_target_and_its_model_show_no_secret(self) -> None:
        async with self.server() as server:
            runtime = self.client_of(server).runtime
            bound = runtime.config.bind(runtime.connector)
            assert isinstance(bound, Deliver | DeliverBatch)
            shown = bound.target() + bound.sent(message()).place + repr(bound.connection) + repr(bound.options)
            self._hides_secrets(server.connection, shown)

    async def test_an_address_that_is_not_allowed_is_refused_before_it_is_used(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with self.server() as server:
            forbid_every_address(monkeypatch)
            client = self.client_of(server)
            with pytest.raises(DeliveryError) as refused:
                await client.deliver_one(message())
            await client.close()
            assert refused.value.reason == "forbidden"
            assert await server.delivered() == []

    async def test_a_connection_test_says_what_was_reached_or_which_field_is_to_blame(self) -> None:
        async with self.server() as server:
            await self.check_what_connection_tests_say(server.connection)

    async def _options(self) -> dict[str, Any]:
        async with self.server() as server:
            return server.options

    def _hides_secrets(self, connection: dict[str, Any], text: str) -> None:
        assert hides_secrets(self.type, connection, text)


class DeliverSuite(_Outputs):
    """For connectors with the capability ``deliver``."""


class DeliverBatchSuite(_Outputs):
    """For connectors with the capability ``deliver_batch``."""

    batch = {"messages": 10}

    async def test_a_batch_arrives_whole(self) -> None:
        async with self.server() as server:
            client = self.client_of(server)
            messages = [message(b'{"n": %d}' % number) for number in range(10)]
            results = await client.deliver_batch(messages)
            await client.close()
            assert not [result for result in results if isinstance(result, DeliveryError)]
            assert sorted(await server.delivered()) == sorted(one.body for one in messages)
