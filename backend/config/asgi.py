"""The console's ASGI application: Django over HTTP, Channels over WebSocket, and the demo's receiver."""

import os

from django.core.asgi import get_asgi_application

from backend.config.imports import garbage_collection_paused
from backend.network.files import raise_file_limit

raise_file_limit()
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.config.settings.dev")
with garbage_collection_paused():
    django_application = get_asgi_application()

    from channels.auth import AuthMiddlewareStack
    from channels.routing import ProtocolTypeRouter, URLRouter
    from channels.security.websocket import AllowedHostsOriginValidator
    from django.conf import settings
    from django.urls import path, re_path

    import backend.config.urls  # noqa: F401  (which the first request would wait for)
    from backend.apps.demo.receiver import Receiver
    from backend.apps.monitoring.consumers import LiveConsumer

_http = [re_path(r"", django_application)]  # type: ignore[arg-type]
if settings.CONSOLE.embedded:
    _http.insert(0, re_path(r"^demo/receiver/", Receiver(settings.REDIS_URL)))  # type: ignore[arg-type]

application = ProtocolTypeRouter(
    {
        "http": URLRouter(_http),
        "websocket": AllowedHostsOriginValidator(
            AuthMiddlewareStack(URLRouter([path("ws/live/", LiveConsumer.as_asgi())]))
        ),
    }
)
