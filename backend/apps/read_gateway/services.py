"""One node of the read gateway, and what is kept of consumer groups."""

import base64
import hashlib
import hmac
import time
from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from backend.apps.read_gateway.accounts import DjangoAccounts
from backend.apps.read_gateway.directory import LIFE, PostgresDirectory, namesake
from backend.apps.read_gateway.groups import PostgresGroups
from backend.apps.read_gateway.models import ConsumerGroup
from backend.apps.read_gateway.selectors import CollectionSchemas, placed_collections
from backend.kafka.gateway.batches import Compression
from backend.kafka.gateway.config import GatewayConfig
from backend.kafka.gateway.delta_storage import DeltaStorage
from backend.kafka.gateway.http import HttpApplication
from backend.kafka.gateway.ports import Node
from backend.kafka.gateway.server import Gateway
from backend.kafka.server.listen import ListenTls, parse_address
from backend.settings import GatewaySettings


class NodeIdTakenError(Exception):
    """Another living node has the same id; the message says where."""


def gateway_config(settings: GatewaySettings) -> GatewayConfig:
    """Raises ValueError when an address or a file is wrong."""
    tls = None
    if settings.certificate:
        tls = ListenTls.model_validate({"certificate": settings.certificate, "private_key": settings.private_key})
    return GatewayConfig(
        node_id=settings.node_id,
        listen=parse_address(settings.listen),
        advertised=parse_address(settings.advertised or settings.listen),
        http=parse_address(settings.http_listen),
        tls=tls,
        compression=Compression[settings.compression.upper()],
        cache_bytes=settings.cache_bytes,
        cache_disk_bytes=settings.cache_disk_bytes,
        bytes_per_second=settings.bytes_per_second,
        connection_limit=settings.connection_limit,
    )


def gateway(config: GatewayConfig) -> Gateway:
    return Gateway(
        config,
        storage=DeltaStorage(placed_collections),
        accounts=DjangoAccounts(),
        directory=PostgresDirectory(),
        groups=PostgresGroups(),
        cluster_id=_cluster_id(),
        http=lambda context: HttpApplication(context, CollectionSchemas()),
    )


def node_id_check(*, config: GatewayConfig) -> None:
    """Raises NodeIdTakenError. Waits for a node that may have been killed at another address."""
    deadline = time.monotonic() + LIFE.total_seconds() + 1
    while other := namesake(Node(config.node_id, config.advertised)):
        if time.monotonic() > deadline:
            raise NodeIdTakenError(
                f"The read gateway's node at {other.host}:{other.port} has the id {other.id} already; "
                "set HEADRACE_GATEWAY_NODE_ID to another number."
            )
        time.sleep(0.2)


def _cluster_id() -> str:
    """The same for all nodes of an installation."""
    digest = hmac.digest(settings.SECRET_KEY.encode(), b"cluster id of the read gateway", hashlib.sha256)
    return base64.urlsafe_b64encode(digest[:16]).decode().rstrip("=")


def consumer_groups_remove_idle(*, kept: timedelta) -> int:
    """Removes groups without members, whose offsets nobody has committed for that long. How many they were."""
    idle = ConsumerGroup.objects.filter(changed_at__lt=timezone.now() - kept)
    removed = [group for group in idle if not group.state.get("members")]
    for group in removed:
        # Only as it was read: a consumer may just have come back.
        ConsumerGroup.objects.filter(pk=group.pk, changed_at=group.changed_at).delete()
    return len(removed)
