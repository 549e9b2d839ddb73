"""The console's ASGI application: Django over HTTP, Channels over WebSocket, and the demo's receiver."""

import os

from django.core.asgi import get_asgi_application

from backend.network.files import raise_file_limit

raise_file_limit()
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.config.settings.dev")
django_application = get_asgi_application()

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels.security.websocket import AllowedHostsOriginValidator  # noqa: E402
from django.conf import settings  # noqa: E402
from django.urls import path, re_path  # noqa: E402

from backend.apps.demo.receiver import Receiver  # noqa: E402
from backend.apps.monitoring.consumers import LiveConsumer  # noqa: E402

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
