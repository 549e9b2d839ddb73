import hmac

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from prometheus_client import CONTENT_TYPE_LATEST

from backend.apps.monitoring.health import components
from backend.apps.monitoring.prometheus import exposition


def live(request: HttpRequest) -> JsonResponse:
    """Liveness: the process answers."""
    return JsonResponse({"status": "live"})


def ready(request: HttpRequest) -> JsonResponse:
    """200 if every component answers, else 503; in both cases with the state of each component."""
    states = components()
    return JsonResponse(states, status=200 if set(states.values()) == {"ok"} else 503)


def metrics(request: HttpRequest) -> HttpResponse:
    """For Prometheus, with the installation's metrics token as bearer token; the embedded installation needs none."""
    token = settings.CONSOLE.metrics_token.get_secret_value()
    presented = request.headers.get("Authorization", "").removeprefix("Bearer ")
    if not (hmac.compare_digest(presented.encode(), token.encode()) if token else settings.CONSOLE.embedded):
        raise Http404
    return HttpResponse(exposition(), content_type=CONTENT_TYPE_LATEST)
