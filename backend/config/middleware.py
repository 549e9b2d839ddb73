from collections.abc import Callable
from urllib.parse import unquote

from django.contrib.auth import logout
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from backend.apps.connectors.vault import VaultUnavailableError
from backend.apps.identity.renewal import provider_session_holds

Handler = Callable[[HttpRequest], HttpResponse]


class UnavailableServiceMiddleware:
    """Answers 503 with the name of the service when PostgreSQL, Redis or Vault is unavailable."""

    def __init__(self, get_response: Handler) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if isinstance(error, OperationalError | InterfaceError):
            return unavailable("PostgreSQL")
        if isinstance(error, RedisConnectionError | RedisTimeoutError):
            return unavailable("Redis")
        if isinstance(error, VaultUnavailableError):
            return unavailable("Vault")
        return None


class UnstorableRequestMiddleware:
    """Answers 400 to addresses and cookies with the character U+0000, which PostgreSQL refuses in any text."""

    def __init__(self, get_response: Handler) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        sent = [request.path_info, unquote(request.META.get("QUERY_STRING", "")), *request.COOKIES.values()]
        if any("\0" in text for text in sent):
            return _problem(400, "Bad Request", "The address or a cookie has the character U+0000: remove it.")
        return self._get_response(request)


class ProviderSessionMiddleware:
    """Signs out users whose session the identity provider has ended."""

    def __init__(self, get_response: Handler) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        try:
            if "oidc_sid" in request.session and not provider_session_holds(str(request.session.session_key)):
                logout(request)
        except (OperationalError, InterfaceError):
            return unavailable("PostgreSQL")
        return self._get_response(request)


def unavailable(service: str) -> JsonResponse:
    detail = f"{service} cannot be reached. The console recovers automatically when it is available again."
    response = _problem(503, f"{service} is unavailable", detail, service=service)
    response["Retry-After"] = "2"
    return response


def _problem(status: int, title: str, detail: str, **more: str) -> JsonResponse:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    return JsonResponse(body, status=status, content_type="application/problem+json")
