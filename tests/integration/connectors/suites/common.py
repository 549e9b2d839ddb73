"""What the suites share."""

import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from backend.domain.connector import CheckFailedError, check_connection, connectors
from backend.domain.masking import secret_values
from backend.domain.message import Message, new_message_id, utc_now
from backend.network import outbound


class Reaching(ABC):
    """For capabilities of connectors that connect to a host."""

    type: str

    @abstractmethod
    def unreachable(self) -> dict[str, Any]:
        """A connection to nobody on this machine."""

    def test_an_address_that_is_not_allowed_is_refused_when_it_is_saved(self) -> None:
        """What is saved is checked as ``hosts`` names it."""
        model = connectors.get(self.type).connection_model
        named = model.model_validate(self.unreachable()).hosts()
        assert {field.partition(".")[0] for field in named} <= model.model_fields.keys()
        hosts = [host for hosts in named.values() for host in hosts]
        assert hosts
        for host in hosts:
            with pytest.raises(outbound.ForbiddenAddressError):
                outbound.OutboundPolicy().check_host(host)

    async def test_an_address_that_is_not_allowed_is_not_tested(self, monkeypatch: pytest.MonkeyPatch) -> None:
        connector = connectors.get(self.type)
        forbid_every_address(monkeypatch)
        with pytest.raises(CheckFailedError, match="not an address of the public internet"):
            await check_connection(connector, connector.connection_model.model_validate(self.unreachable()))

    async def check_what_connection_tests_say(self, connection: dict[str, Any]) -> None:
        """Of a connection that works what was reached, and of one to nobody which field is to blame."""
        connector = connectors.get(self.type)
        reached = await check_connection(connector, connector.connection_model.model_validate(connection))
        assert reached.endswith(".")
        assert hides_secrets(self.type, connection, reached)
        unreachable = self.unreachable()
        with pytest.raises(CheckFailedError) as failed:
            await check_connection(connector, connector.connection_model.model_validate(unreachable))
        assert str(failed.value.field).partition(".")[0] in connector.connection_model.model_fields
        assert hides_secrets(self.type, unreachable, str(failed.value))


def message(body: bytes = b'{"n": 1}') -> Message:
    message_id = new_message_id()
    return Message(message_id, "p", 1, message_id.encode(), body, "application/json", utc_now(), ())


def forbid_every_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the operator allowed no network."""
    policy = outbound.outbound_policy
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("outbound_policy") is policy:  # loads nothing lazily
            monkeypatch.setattr(module, "outbound_policy", lambda: outbound.OutboundPolicy([]))


def hides_secrets(connector_type: str, connection: dict[str, Any], text: str) -> bool:
    model = connectors.get(connector_type).connection_model.model_validate(connection)
    return not [secret for secret in secret_values(model) if secret in text]


@asynccontextmanager
async def opened(reader: Any) -> AsyncIterator[Any]:
    """As the input task opens and closes it."""
    try:
        await reader.open()
        yield reader
    finally:
        await reader.close()
