"""The proxy's HTTP endpoints for operators: /health, /ready, /metrics, and /status for the console."""

from collections.abc import Callable
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from backend.domain import json
from backend.kafka.proxy.context import Context
from backend.kafka.server.http import answer


class Operations:
    """An ASGI application with the endpoints of one proxy."""

    def __init__(self, context: Context, *, connections: Callable[[], int], is_draining: Callable[[], bool]) -> None:
        self._context = context
        self._connections = connections
        self._is_draining = is_draining

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        status, kind, body = self._answer(scope["path"])
        await answer(send, status, kind, body)

    def _answer(self, path: str) -> tuple[int, str, bytes]:
        if path == "/health":
            return 200, "application/json", b'{"status":"ok"}'
        if path == "/ready":
            status, state = (503, "draining") if self._is_draining() else (200, "ready")
            return status, "application/json", json.dumps({"status": state})
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest()
        if path == "/status":
            return 200, "application/json", json.dumps(self._status())
        return 404, "application/json", b'{"status":"not found"}'

    def _status(self) -> dict[str, Any]:
        context = self._context
        nodes, brokers = context.nodes, context.topology.brokers
        assigned = nodes.assignment(brokers.values())
        activity = context.activity
        up = {node.broker_id for node in nodes.up()}
        return {
            "cluster_id": context.topology.cluster_id,
            "local": nodes.local.broker_id,
            "nodes": [
                {
                    "id": node.broker_id,
                    "address": str(node.address_for_clients),
                    "rack": node.rack,
                    "is_up": node.broker_id in up,
                }
                for node in context.config.proxy_nodes
            ],
            "brokers": [
                {
                    "id": b.id,
                    "address": str(b.address),
                    "rack": b.rack,
                    "proxy": assigned[b.id].broker_id,
                    **activity.brokers.facts_of(str(b.address)),
                }
                for b in brokers.values()
            ],
            "clients": activity.clients.facts(),
            "last_errors": activity.errors.facts(),
            "connections": self._connections(),
            "is_draining": self._is_draining(),
        }
