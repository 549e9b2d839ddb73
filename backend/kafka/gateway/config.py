"""The configuration of one node of the gateway."""

from dataclasses import dataclass

from backend.kafka.gateway.batches import Compression
from backend.kafka.server.listen import HostPort, ListenTls


@dataclass(frozen=True)
class GatewayConfig:
    """``advertised`` is the address at which clients reach the node, ``http`` serves the schema registry and health
    checks. ``bytes_per_second`` is the quota of each key; 0 for none."""

    node_id: int
    listen: HostPort
    advertised: HostPort
    http: HostPort
    tls: ListenTls | None = None
    compression: Compression = Compression.ZSTD
    cache_bytes: int = 256 * 1024 * 1024
    cache_disk_bytes: int = 4 * 1024**3
    bytes_per_second: int = 0
    connection_limit: int = 2000
    drain_seconds: float = 5.0
