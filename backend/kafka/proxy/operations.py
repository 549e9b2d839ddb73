"""The proxy's HTTP endpoints for operators: /health, /ready, /metrics, and /status for the console."""

from typing import TYPE_CHECKING, Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from backend.domain import json

if TYPE_CHECKING:
    from backend.kafka.proxy.server import Proxy


class Operations:
    """An ASGI application with the endpoints of one proxy."""

    def __init__(self, proxy: "Proxy") -> None:
        self._proxy = proxy

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        status, kind, body = self._answer(scope["path"])
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, path: str) -> tuple[int, str, bytes]:
        if path == "/health":
            return 200, "application/json", b'{"status":"ok"}'
        if path == "/ready":
            state = "draining" if self._proxy.is_draining else "ready"
            return 503 if self._proxy.is_draining else 200, "application/json", json.dumps({"status": state})
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest()
        if path == "/status":
            return 200, "application/json", json.dumps(self._status())
        return 404, "application/json", b'{"status":"not found"}'

    def _status(self) -> dict[str, Any]:
        context = self._proxy.context
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
            "connections": len(self._proxy.clients),
            "is_draining": self._proxy.is_draining,
        }
