"""The gateway's HTTP port: the schema registry, health checks and metrics."""

import logging
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from backend.domain import json
from backend.kafka.gateway.context import Context
from backend.kafka.gateway.ports import StoreError
from backend.kafka.gateway.registry import Registry, RegistryError, Schemas, Text
from backend.kafka.server.http import answer

log = logging.getLogger(__name__)

_JSON = "application/json"
_REGISTRY = "application/vnd.schemaregistry.v1+json"


class HttpApplication:
    """An ASGI application: ``/health/live``, ``/health/ready`` and ``/metrics``, and otherwise the schema registry."""

    def __init__(self, context: Context, schemas: Schemas) -> None:
        self._context = context
        self._registry = Registry(context.accounts, schemas)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        if path == "/health/live":
            await answer(send, 200, _JSON, json.dumps({"status": "ok"}))
        elif path == "/health/ready":
            status, state = (503, "draining") if self._context.is_draining() else (200, "ready")
            await answer(send, status, _JSON, json.dumps({"status": state}))
        elif path == "/metrics":
            await answer(send, 200, CONTENT_TYPE_LATEST, generate_latest())
        else:
            await self._registry_answer(scope, send)

    async def _registry_answer(self, scope: dict[str, Any], send: Any) -> None:
        try:
            if scope["method"] not in ("GET", "HEAD"):
                raise RegistryError(405, 405, "The registry can only be read: schemas belong to collections.")
            authorization = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
            result = await self._registry.get(scope["path"], authorization)
        except RegistryError as error:
            await answer(send, error.status, _REGISTRY, json.dumps(error.body), error.headers)
        except StoreError as error:
            log.warning("The schema registry cannot answer: %s", error)
            body = {"error_code": 50001, "message": "The schemas cannot be read at the moment; try again."}
            await answer(send, 503, _REGISTRY, json.dumps(body))
        else:
            await answer(send, 200, _REGISTRY, result.encode() if isinstance(result, Text) else json.dumps(result))
