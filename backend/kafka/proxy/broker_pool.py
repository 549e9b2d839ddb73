"""The connections to brokers that one client's requests use: at most one to each broker."""

import random
from collections.abc import Callable

from backend.kafka.proxy import metrics
from backend.kafka.proxy.broker_connection import BrokerConnection
from backend.kafka.proxy.context import Context
from backend.kafka.proxy.sasl import Login
from backend.kafka.proxy.topology import Broker
from backend.kafka.server.listen import HostPort


class BrokerPool:
    """Opened when they are first used. ``on_writable`` says whether brokers take data fast enough, ``on_home_closed``
    that the connection to the home broker has ended."""

    def __init__(
        self, context: Context, *, on_writable: Callable[[bool], None], on_home_closed: Callable[[], None]
    ) -> None:
        self._context = context
        self._on_writable = on_writable
        self._on_home_closed = on_home_closed
        self._open: dict[HostPort, BrokerConnection] = {}
        self._home: HostPort | None = None
        self._failed: set[HostPort] = set()

    def to(self, broker: Broker | None, login: Login | None) -> BrokerConnection:
        """The connection to a broker, or to the home broker, which gets the requests that any broker can answer.

        A new connection signs in with ``login``.
        """
        address = broker.address if broker is not None else self._home_address()
        connection = self._open.get(address)
        if connection is None:
            rack = self._context.nodes.local.rack
            if broker is not None and rack is not None and broker.rack != rack:
                metrics.OUT_OF_RACK.inc()
            config = self._context.config
            connection = self._open[address] = BrokerConnection(
                address,
                config,
                tally=self._context.activity.brokers.of(str(address)),
                tls=config.tls.brokers,
                login=login,
                on_closed=self._closed,
                on_writable=self._on_writable,
            )
        return connection

    @property
    def have_unsent(self) -> bool:
        return any(connection.has_unsent for connection in self._open.values())

    def pause(self, paused: bool) -> None:
        """Stops reading answers, or resumes it."""
        for connection in self._open.values():
            connection.pause(paused)

    def check(self, now: float) -> None:
        for connection in list(self._open.values()):
            connection.check(now)

    def log_in_again(self, login: Login) -> None:
        """Signs in at every broker but the home broker, where the client itself has."""
        for address, connection in self._open.items():
            if address != self._home:
                connection.log_in_again(login)

    def close(self) -> None:
        for connection in list(self._open.values()):
            connection.close()

    def _home_address(self) -> HostPort:
        if self._home is None:
            rack = self._context.nodes.local.rack
            brokers = list(self._context.topology.brokers.values())
            contact_points = self._context.config.first_contact_points
            nearby = [broker.address for broker in brokers if broker.rack == rack]
            for addresses in (nearby, [broker.address for broker in brokers], contact_points):
                usable = [address for address in addresses if address not in self._failed]
                if usable:
                    self._home = random.choice(usable)
                    return self._home
            self._failed.clear()
            self._home = random.choice(contact_points)
        return self._home

    def _closed(self, connection: BrokerConnection, has_failed: bool) -> None:
        address = connection.address
        if self._open.get(address) is connection:
            del self._open[address]
        if self._home == address:
            self._home = None
            if has_failed:
                self._failed.add(address)
            self._on_home_closed()
        if has_failed:
            topology = self._context.topology
            for broker in topology.brokers.values():
                if broker.address == address:
                    topology.suspect(broker)
                    break
