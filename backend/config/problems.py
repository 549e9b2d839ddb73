"""The REST API's errors as RFC 9457 problem+json, with ``errors`` keyed by dotted field path."""

from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.serializers import as_serializer_error
from rest_framework.views import set_rollback

from backend.domain.errors import ConfigError, ConflictError


def problem_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """The exception handler of DRF. Unknown errors are left to Django, which logs them."""
    if isinstance(error, Http404):
        error = exceptions.NotFound("There is no such object in this workspace.")
    elif isinstance(error, PermissionDenied):
        error = exceptions.PermissionDenied()
    if isinstance(error, ConfigError):
        errors: dict[str, list[str]] = error.errors
        status, detail = 400, "The request was rejected and nothing was saved. See errors."
    elif isinstance(error, exceptions.ValidationError):
        errors = dict(_by_path(as_serializer_error(error), ()))
        status, detail = 400, "The request was rejected and nothing was saved. See errors."
    elif isinstance(error, ConflictError):
        errors, status, detail = {}, 409, str(error)
    elif isinstance(error, exceptions.APIException):
        errors, status, detail = {}, error.status_code, str(error.detail)
    else:
        return None
    set_rollback()
    body: dict[str, Any] = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    body |= {"detail": detail} | ({"errors": errors} if errors else {})
    response = Response(body, status=status, content_type="application/problem+json")
    if auth_header := getattr(error, "auth_header", None):
        response["WWW-Authenticate"] = auth_header
    return response


def _by_path(detail: Any, path: tuple[str, ...]) -> Any:
    if isinstance(detail, dict):
        for name, value in detail.items():
            yield from _by_path(value, path if name == "non_field_errors" else (*path, str(name)))
    elif isinstance(detail, list) and any(isinstance(item, dict | list) for item in detail):
        for index, value in enumerate(detail):
            yield from _by_path(value, (*path, str(index)))
    else:
        yield ".".join(path), [str(item) for item in (detail if isinstance(detail, list) else [detail])]
