"""What the suites share."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from backend.domain.connector import connectors
from backend.domain.masking import secret_values
from backend.domain.message import Message, new_message_id, utc_now
from backend.network import outbound


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
