"""The New system connector, against a stand-in for the system."""

import hashlib
import hmac
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from backend.connectors import new_system
from tests.integration.connectors.suites import (
    Answers,
    CallSuite,
    DeliverBatchSuite,
    DeliverSuite,
    ExportSuite,
    Genuine,
    Reaching,
    ReadBatchSuite,
    ReadStreamSuite,
    Registering,
    RegisterSuite,
    Server,
    Source,
    Store,
    VerifySuite,
)
from tests.new_connector.stand_in import PASSWORD, StandIn, stand_in, unreachable


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that hangs does not delay the tests for long."""
    monkeypatch.setattr(new_system, "ANSWER_SECONDS", 5.0)


class _NewSystem:
    type = "new_system"

    def unreachable(self) -> dict[str, Any]:
        return unreachable()


class _Queue(Server):
    def __init__(self, system: StandIn) -> None:
        super().__init__(system.connection, {"queue": "orders"})
        self._system = system

    async def delivered(self) -> list[bytes]:
        return [body.encode() for body in self._system.queues.get("orders", [])]


class TestDeliver(_NewSystem, DeliverSuite):
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Server]:
        async with stand_in(hangs=hangs) as system:
            yield _Queue(system)


class TestDeliverBatch(_NewSystem, DeliverBatchSuite):
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Server]:
        async with stand_in(hangs=hangs) as system:
            yield _Queue(system)


class _Records(Source):
    def __init__(self, system: StandIn) -> None:
        super().__init__(system.connection, {"queue": "orders"})
        self._system = system

    async def write(self, bodies: Sequence[bytes]) -> None:
        self._system.queues.setdefault("orders", []).extend(body.decode() for body in bodies)


class TestReadBatch(_NewSystem, ReadBatchSuite):
    @asynccontextmanager
    async def source(self, *, hangs: bool = False) -> AsyncIterator[Source]:
        async with stand_in(hangs=hangs) as system:
            yield _Records(system)


class TestReadStream(_NewSystem, ReadStreamSuite):
    @asynccontextmanager
    async def source(self, *, hangs: bool = False) -> AsyncIterator[Source]:
        async with stand_in(hangs=hangs) as system:
            yield _Records(system)


class TestVerify(_NewSystem, VerifySuite, Reaching):
    @pytest.fixture(autouse=True)
    async def system(self) -> AsyncIterator[None]:
        async with stand_in() as system:
            self._connection = system.connection
            yield

    def connection(self) -> dict[str, Any]:
        return self._connection

    def sent(self, body: bytes) -> Genuine:
        return self._signed(PASSWORD, body)

    def foreign(self, body: bytes) -> Genuine:
        return self._signed("another-password", body)

    def _signed(self, key: str, body: bytes) -> Genuine:
        signature = hmac.new(key.encode(), body, hashlib.sha256).hexdigest()
        return Genuine({"x-signature": signature}, ("x-signature",))


class TestCall(_NewSystem, CallSuite):
    @asynccontextmanager
    async def system(self, *, hangs: bool = False) -> AsyncIterator[Answers]:
        async with stand_in(hangs=hangs) as system:
            yield Answers(system.connection, {"question": {"value": "{{value}}"}}, system.questions)


class _Files(Store):
    def __init__(self, system: StandIn) -> None:
        super().__init__(system.connection)
        self._system = system

    async def everything(self) -> dict[str, bytes]:
        return self._system.files()


class TestExport(_NewSystem, ExportSuite):
    login = "password"

    @asynccontextmanager
    async def store(self, *, hangs: bool = False) -> AsyncIterator[Store]:
        async with stand_in(hangs=hangs) as system:
            yield _Files(system)

    def rejected(self, connection: dict[str, Any]) -> dict[str, Any] | None:
        return connection | {"password": "another-password"}


class _Registration(Registering):
    def __init__(self, system: StandIn) -> None:
        super().__init__(system.connection, {"queue": "orders"})
        self._system = system

    async def present(self) -> set[str]:
        return self._system.registrations.keys() & {self.name}


class TestRegister(_NewSystem, RegisterSuite):
    @asynccontextmanager
    async def system(self, *, hangs: bool = False) -> AsyncIterator[Registering]:
        async with stand_in(hangs=hangs) as system:
            yield _Registration(system)
