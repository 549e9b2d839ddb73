"""Prevents lost updates: the ETag in ``If-Match`` must still be that of the object."""

from typing import Any, TypeVar

from django.db import models, transaction
from django.http import Http404
from rest_framework import exceptions, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ModelViewSet

M = TypeVar("M", bound=models.Model)


class PreconditionFailedError(exceptions.APIException):
    status_code = 412
    default_detail = "Somebody else has changed this since you read it. Read it again, then repeat your change."


def etag_of(instance: Any) -> str:
    """Changes with each save of an object that has ``updated_at``."""
    return f'"{int(instance.updated_at.timestamp() * 1_000_000)}"'


class ETagField(serializers.CharField):
    """Also in the body, so that a list has one for each object."""

    def __init__(self) -> None:
        super().__init__(source="*", read_only=True, help_text="Sent back as If-Match, it prevents lost updates.")

    def to_representation(self, value: Any) -> str:
        return etag_of(value)


class ETagViewSet(ModelViewSet[M]):
    """A ModelViewSet whose updates and deletions honour ``If-Match``."""

    def update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        with transaction.atomic():
            self._check(request)
            return super().update(request, *args, **kwargs)

    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        with transaction.atomic():
            self._check(request)
            return super().destroy(request, *args, **kwargs)

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Any:
        if isinstance(response.data, dict) and "etag" in response.data:
            response["ETag"] = response.data["etag"]
        return super().finalize_response(request, response, *args, **kwargs)

    def _check(self, request: Request) -> None:
        if_match = request.headers.get("If-Match")
        if if_match in (None, "*"):
            return
        # Locked until the change is saved, so that one of two concurrent editors is rejected.
        locked = self.get_queryset().model._default_manager.select_for_update().filter(pk=self.get_object().pk).first()
        if locked is None:
            raise Http404
        if if_match != etag_of(locked):
            raise PreconditionFailedError
