"""Requests that the proxy sends under its own identity, for the delegation tokens of users."""

import random

from backend.kafka.proxy.activity import Tally
from backend.kafka.proxy.broker_connection import BrokerConnection
from backend.kafka.proxy.config import ProxyConfig
from backend.kafka.proxy.sasl import Tokens
from backend.kafka.wire.api import ApiKey
from backend.kafka.wire.structs import Struct


class OwnConnection:
    """A connection to any of the contact points, opened when it is first needed."""

    def __init__(self, config: ProxyConfig) -> None:
        self._config = config
        self._connection: BrokerConnection | None = None

    async def request(self, api_key: ApiKey, version: int, body: Struct) -> Struct:
        """Sends a request and awaits the answer. Raises ConnectionError."""
        tokens = self._config.sasl.delegation_tokens
        assert tokens is not None
        if self._connection is None:
            self._connection = BrokerConnection(
                random.choice(tokens.contact_points),
                self._config,
                tally=Tally(),
                tls=tokens.tls,
                login=None,
                on_closed=self._closed,
                on_writable=lambda writable: None,
            )
        return await self._connection.request(api_key, version, body)

    def _closed(self, connection: BrokerConnection, has_failed: bool) -> None:
        if self._connection is connection:
            self._connection = None


def tokens_of(config: ProxyConfig) -> Tokens | None:
    """The users' tokens, or None if delegation tokens are not configured."""
    settings = config.sasl.delegation_tokens
    return Tokens(OwnConnection(config).request, settings.lifetime_seconds) if settings is not None else None
