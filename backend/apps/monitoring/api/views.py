from django.http import HttpRequest, JsonResponse

from backend.apps.monitoring.health import components


def live(request: HttpRequest) -> JsonResponse:
    """The process answers."""
    return JsonResponse({"status": "live"})


def ready(request: HttpRequest) -> JsonResponse:
    """200 when every component answers, else 503; either way with each component's state."""
    states = components()
    return JsonResponse(states, status=200 if set(states.values()) == {"ok"} else 503)
