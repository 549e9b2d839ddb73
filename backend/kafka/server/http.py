"""HTTP endpoints beside a Kafka service, on its event loop."""

from typing import Any

import uvicorn

from backend.kafka.server.listen import HostPort, ListenTls


async def serve_http(application: Any, address: HostPort, tls: ListenTls | None = None) -> None:
    """Serves an ASGI application until it is cancelled. Signals stay with the process."""
    config = uvicorn.Config(application, host=address.host, port=address.port, access_log=False)
    config.lifespan, config.log_level = "off", "warning"
    if tls is not None:
        config.ssl_certfile, config.ssl_keyfile = str(tls.certificate), str(tls.private_key)
    await uvicorn.Server(config)._serve()


async def answer(send: Any, status: int, kind: str, body: bytes, headers: dict[str, str] | None = None) -> None:
    """Sends a whole response."""
    lines = {"content-type": kind, "content-length": str(len(body)), **(headers or {})}
    raw = [(name.encode(), value.encode()) for name, value in lines.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
