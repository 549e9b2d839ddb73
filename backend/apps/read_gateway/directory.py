"""The living nodes of the gateway, in PostgreSQL."""

from collections.abc import Sequence
from datetime import timedelta

from django.db.models import QuerySet
from django.db.models.functions import Now

from backend.apps.read_gateway.models import GatewayNode
from backend.apps.read_gateway.threads import stored
from backend.kafka.gateway.ports import Node
from backend.kafka.server.listen import HostPort

LIFE = timedelta(seconds=5)
"""How long a node that says nothing counts as alive: several times the interval at which it says so."""


class PostgresDirectory:
    """The Directory of the gateway."""

    async def beat(self, node: Node) -> Sequence[Node]:
        return await stored(_beat, node)

    async def leave(self, node: Node) -> None:
        await stored(_leave, node)


def living() -> QuerySet[GatewayNode]:
    return GatewayNode.objects.filter(seen_at__gt=Now() - LIFE).order_by("id")


def namesake(node: Node) -> GatewayNode | None:
    """Another process that lives and has the same id."""
    return living().filter(id=node.id).exclude(host=node.address.host, port=node.address.port).first()


def _beat(node: Node) -> Sequence[Node]:
    GatewayNode.objects.bulk_create(
        [GatewayNode(id=node.id, host=node.address.host, port=node.address.port, seen_at=Now())],
        update_conflicts=True,
        unique_fields=["id"],
        update_fields=["host", "port", "seen_at"],
    )
    return [Node(row.id, HostPort(host=row.host, port=row.port)) for row in living()]


def _leave(node: Node) -> None:
    GatewayNode.objects.filter(id=node.id).delete()
