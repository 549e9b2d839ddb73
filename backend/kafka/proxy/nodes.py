"""Which proxy represents which broker, and which proxies are up."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterable

from backend.kafka.proxy import metrics
from backend.kafka.proxy.config import ProxyConfig, ProxyNode
from backend.kafka.proxy.topology import Broker
from backend.kafka.server.placement import weight

log = logging.getLogger(__name__)

_JITTER = 0.1


class Nodes:
    """All proxies. Each computes the same assignment, which depends only on the brokers and the proxies that are up."""

    def __init__(self, config: ProxyConfig) -> None:
        self.local = config.local
        self._all = {node.broker_id: node for node in config.proxy_nodes}
        self._down: set[int] = set()
        self._assigned: dict[int, ProxyNode] = {}
        self._assigned_for: tuple[tuple[Broker, ...], frozenset[int]] | None = None
        self._delay = config.check_peers_delay_ms / 1000
        self._connect_seconds = config.connect_timeout_ms / 1000

    def up(self) -> list[ProxyNode]:
        return [node for node in self._all.values() if node.broker_id not in self._down]

    def down(self) -> list[ProxyNode]:
        return [self._all[broker_id] for broker_id in self._down]

    def assignment(self, brokers: Iterable[Broker]) -> dict[int, ProxyNode]:
        """The proxy that represents each broker, by the broker's id: one of its rack if any of these is up."""
        basis = (tuple(brokers), frozenset(self._down))
        if basis != self._assigned_for:
            self._assigned, self._assigned_for = self._assign(basis[0]), basis
        return self._assigned

    def _assign(self, brokers: tuple[Broker, ...]) -> dict[int, ProxyNode]:
        """Bounded rendezvous hashing: when a proxy leaves, few brokers move, and none of the others gets them all."""
        assigned: dict[int, ProxyNode] = {}
        up = self.up()
        racks = {node.rack for node in up}
        for rack in {broker.rack if broker.rack in racks else None for broker in brokers}:
            proxies = [node for node in up if rack is None or node.rack == rack]
            members = [broker for broker in brokers if (broker.rack if broker.rack in racks else None) == rack]
            bound = -(-len(members) // len(proxies))
            load = dict.fromkeys((node.broker_id for node in proxies), 0)
            for broker in sorted(members, key=lambda b: b.id):
                candidates = [node for node in proxies if load[node.broker_id] < bound]
                chosen = max(candidates, key=lambda node: weight(str(broker.address), node.broker_id))
                load[chosen.broker_id] += 1
                assigned[broker.id] = chosen
        return assigned

    async def watch_peers(self) -> None:
        """Checks the other proxies in turn until it is cancelled."""
        peers = [node for node in self._all.values() if node is not self.local]
        while peers:
            for peer in peers:
                await asyncio.sleep(self._delay / len(peers) * random.uniform(1 - _JITTER, 1 + _JITTER))
                self._note(peer, await self._answers(peer))

    def _note(self, peer: ProxyNode, is_up: bool) -> None:
        if is_up == (peer.broker_id not in self._down):
            return
        if is_up:
            log.info("Proxy %s (%s) is available again.", peer.broker_id, peer.address_for_peers)
            self._down.discard(peer.broker_id)
        else:
            log.warning("Proxy %s (%s) is unavailable.", peer.broker_id, peer.address_for_peers)
            self._down.add(peer.broker_id)
        metrics.PEERS_DOWN.set(len(self._down))

    async def _answers(self, peer: ProxyNode) -> bool:
        address = peer.address_for_peers
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, writer = await asyncio.open_connection(address.host, address.port)
        except (OSError, TimeoutError):
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True
