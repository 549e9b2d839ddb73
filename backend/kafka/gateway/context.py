"""What all connections of one gateway share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from backend.kafka.gateway.batches import Compression
from backend.kafka.gateway.catalog import Catalog
from backend.kafka.gateway.connection import Handler
from backend.kafka.gateway.groups.coordinator import Coordinator
from backend.kafka.gateway.logs import Logs
from backend.kafka.gateway.nodes import Nodes
from backend.kafka.gateway.ports import Accounts, Storage
from backend.kafka.gateway.quotas import Quotas
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey
from backend.kafka.wire.messages import REQUESTS
from backend.kafka.wire.structs import Struct

_VERSIONS = codec.response_type(ApiKey.API_VERSIONS)
_VERSION = _VERSIONS.type_of("api_keys")


@dataclass(frozen=True)
class Context:
    """``apis`` are the handlers of requests, by API key."""

    storage: Storage
    accounts: Accounts
    catalog: Catalog
    logs: Logs
    nodes: Nodes
    coordinator: Coordinator
    quotas: Quotas
    apis: Mapping[int, Handler]
    compression: Compression
    cluster_id: str
    is_draining: Callable[[], bool]

    def api_versions(self) -> Struct:
        """The APIs and versions that the gateway offers."""
        versions = {key: REQUESTS[key].versions for key in sorted(self.apis)}
        return _VERSIONS(
            api_keys=[_VERSION(api_key=key, min_version=v.first, max_version=v.last) for key, v in versions.items()]
        )
