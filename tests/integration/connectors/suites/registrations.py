"""For the capability ``register``."""

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from backend.domain import json
from backend.domain.capabilities import DeliveryError, Register
from backend.domain.connector import RuntimeConnector
from backend.domain.uses import bind
from tests.integration.connectors.suites.common import Reaching, forbid_every_address, hides_secrets, opened


class Registering(ABC):
    """A real server in which a use has something made."""

    def __init__(self, connection: dict[str, Any], options: dict[str, Any]) -> None:
        self.connection = connection
        self.options = options
        self.name = f"headrace_{uuid.uuid4().hex}"

    @abstractmethod
    async def present(self) -> set[str]:
        """The names of all that the server has for this registration."""


class RegisterSuite(Reaching):
    """For connectors with the capability ``register``."""

    @abstractmethod
    @asynccontextmanager
    async def system(self, *, hangs: bool = False) -> AsyncIterator[Registering]:
        """A server that works and has nothing of this registration, or one that accepts connections and never
        answers. What is left in it afterwards is removed."""
        yield Registering({}, {})  # type: ignore[abstract]

    async def test_what_was_made_is_made_once_and_what_describes_it_has_no_secrets(self) -> None:
        async with self.system() as system:
            made = await self._register(system, {})
            present = await system.present()
            assert present
            assert hides_secrets(self.type, system.connection, json.dumps(made).decode())
            again = await self._register(system, json.loads(json.dumps(made)))
            assert again == made
            assert await system.present() == present

    async def test_a_registration_that_was_cut_off_before_it_was_stored_is_taken_up(self) -> None:
        async with self.system() as system:
            made = await self._register(system, {})
            present = await system.present()
            again = await self._register(system, {})
            assert again.keys() == made.keys()
            assert await system.present() == present

    @pytest.mark.parametrize("stored", [True, False])
    async def test_what_was_made_is_removed_also_twice_and_when_it_was_not_stored(self, stored: bool) -> None:
        async with self.system() as system:
            made = await self._register(system, {})
            for _ in range(2):
                await self.remove(system, made if stored else {})
                assert await system.present() == set()

    async def test_nothing_is_removed_where_nothing_was_made(self) -> None:
        async with self.system() as system:
            await self.remove(system, {})

    async def test_what_was_just_made_is_in_no_danger(self) -> None:
        async with self.system() as system:
            made = await self._register(system, {})
            state = await self._call(
                system.connection, system.options, lambda register: register.state(system.name, made)
            )
            assert state.warning == ""

    async def test_nobody_there_is_a_transient_fault_without_secrets(self) -> None:
        async with self.system() as system:
            failures = await self._failures(system, self.unreachable())
        for failure in failures:
            assert failure.retryable
            assert hides_secrets(self.type, self.unreachable(), str(failure) + failure.response)

    async def test_a_server_that_hangs_is_a_transient_fault(self) -> None:
        async with self.system(hangs=True) as system:
            assert all(failure.retryable for failure in await self._failures(system, system.connection))

    async def test_an_address_that_is_not_allowed_is_refused_before_it_is_used(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with self.system() as system:
            with monkeypatch.context() as patch:
                forbid_every_address(patch)
                failures = await self._failures(system, system.connection)
            assert {failure.reason for failure in failures} == {"forbidden"}
            assert await system.present() == set()

    async def test_a_connection_test_says_what_was_reached_or_which_field_is_to_blame(self) -> None:
        async with self.system() as system:
            await self.check_what_connection_tests_say(system.connection)

    async def remove(self, system: Registering, made: dict[str, Any] | None = None) -> None:
        await self._call(
            system.connection, system.options, lambda register: register.unregister(system.name, made or {})
        )

    async def _register(self, system: Registering, made: dict[str, Any]) -> dict[str, Any]:
        registered: dict[str, Any] = await self._call(
            system.connection, system.options, lambda register: register.register(system.name, made)
        )
        return registered

    async def _failures(self, system: Registering, connection: dict[str, Any]) -> list[DeliveryError]:
        """Why nothing can be made and nothing be removed."""
        calls: list[Callable[[Any], Awaitable[Any]]] = [
            lambda register: register.register(system.name, {}),
            lambda register: register.unregister(system.name, {}),
        ]
        failures = []
        for call in calls:
            with pytest.raises(DeliveryError) as failed:
                await self._call(connection, system.options, call)
            failures.append(failed.value)
        return failures

    async def _call(
        self, connection: dict[str, Any], options: dict[str, Any], call: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        """As the provisioning opens, uses and closes it."""
        runtime = RuntimeConnector(type=self.type, connection=connection)
        register = bind(runtime, options, lambda connector: connector.capability(Register), "be prepared")
        try:
            async with asyncio.timeout(60), opened(register):
                return await call(register)
        except DeliveryError as error:
            raise error.without(register.secrets()) from None
