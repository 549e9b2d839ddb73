"""For the capability ``call``."""

import asyncio
import uuid
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from backend.api_calls.api import System
from backend.domain import json
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import RuntimeConnector
from backend.domain.message import Message, new_message_id, utc_now
from backend.domain.message_templates import Metadata
from backend.domain.transforms.call import Call
from tests.integration.connectors.suites.common import Reaching, forbid_every_address, hides_secrets
from tests.integration.connectors.suites.inputs import DOCUMENTS
from tests.waiting import LIMIT_SECONDS

METADATA = Metadata(Message(new_message_id(), "p", 1, b"", b"{}", "application/json", utc_now(), ()))


@dataclass
class Answers:
    """A real server that a step asks, and options with which the request names the field ``value`` of a document.

    The answer is a JSON object whose field ``value`` is the same.
    """

    connection: dict[str, Any]
    options: dict[str, Any]
    requests: list[Any] = field(default_factory=list)
    """The requests that the server received."""


class CallSuite(Reaching):
    """For connectors with the capability ``call``."""

    values: Sequence[Any] = (*DOCUMENTS, *range(50))
    """What is asked for; fewer where a question cannot be a document of any kind."""

    @abstractmethod
    @asynccontextmanager
    async def system(self, *, hangs: bool = False) -> AsyncIterator[Answers]:
        """A server that works, or one that accepts connections and never answers."""
        yield Answers({}, {})

    def caller(self, connection: dict[str, Any], options: dict[str, Any], **step: Any) -> System:
        """As a step calls it."""
        fields = {"type": "call", "connector": str(uuid.uuid4()), "options": options, "to": "answer", **step}
        return System(Call.model_validate(fields), RuntimeConnector(type=self.type, connection=connection))

    async def test_each_of_many_documents_gets_its_own_answer(self) -> None:
        async with self.system() as system:
            caller = self.caller(system.connection, system.options, timeout_seconds=30)
            documents = [{"value": value} for value in self.values]
            answers = await asyncio.gather(*(caller.ask(caller.request(document, METADATA)) for document in documents))
            await caller.close()
            values = [json.loads(json.dumps(value)) for value in self.values]
            assert [json.loads(answer)["value"] for answer in answers] == values

    async def test_equal_documents_make_equal_requests_and_others_do_not(self) -> None:
        async with self.system() as system:
            of: Callable[[Any, Metadata], Hashable] = self.caller(system.connection, system.options).request

            def request(document: Any) -> Hashable:
                return of(document, METADATA)

            assert request({"value": "ü", "other": 1}) == request({"value": "ü", "other": 2})
            assert len({request({"value": value}) for value in (1, 1, "é", "e", True)}) == 4
            with pytest.raises(ValueError, match="value"):
                request({})
            assert system.requests == []

    async def test_the_request_is_shown_without_address_and_secrets(self) -> None:
        async with self.system() as system:
            caller = self.caller(system.connection, system.options)
            shown = caller.shown(caller.request({"value": "São Paulo"}, METADATA))
            assert "São Paulo" in shown
            assert hides_secrets(self.type, system.connection, shown)
            assert "127.0.0.1" not in shown

    async def test_nobody_there_is_a_transient_fault_without_secrets(self) -> None:
        async with self.system() as system:
            failure = await self._failure(self.unreachable(), system.options)
        assert failure.retryable
        assert hides_secrets(self.type, self.unreachable(), str(failure) + failure.response)

    async def test_a_server_that_hangs_is_cut_off(self) -> None:
        async with self.system(hangs=True) as system:
            failure = await self._failure(system.connection, system.options, timeout_seconds=1)
            assert (failure.reason, failure.retryable) == ("timeout", True)

    async def test_an_address_that_is_not_allowed_is_refused_before_it_is_used(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with self.system() as system:
            forbid_every_address(monkeypatch)
            failure = await self._failure(system.connection, system.options)
            assert (failure.reason, failure.retryable) == ("forbidden", False)
            assert system.requests == []

    async def test_a_connection_test_says_what_was_reached_or_which_field_is_to_blame(self) -> None:
        async with self.system() as system:
            await self.check_what_connection_tests_say(system.connection)

    async def test_it_closes_without_having_been_called(self) -> None:
        async with self.system() as system:
            await self.caller(system.connection, system.options).close()

    async def _failure(self, connection: dict[str, Any], options: dict[str, Any], **step: Any) -> DeliveryError:
        caller = self.caller(connection, options, **step)
        async with asyncio.timeout(LIMIT_SECONDS):
            with pytest.raises(DeliveryError) as failed:
                await caller.ask(caller.request({"value": 1}, METADATA))
            await caller.close()
        return failed.value
