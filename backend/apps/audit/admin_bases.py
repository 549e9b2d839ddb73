"""Base classes of all admin pages: every change made there is written to the audit log."""

import json
from typing import Any, TypeVar

from django.contrib import admin
from django.contrib.admin.options import BaseModelAdmin
from django.contrib.auth import get_user_model
from django.db import models
from django.http import HttpRequest

from backend.apps.audit.services import audit_record

M = TypeVar("M", bound=models.Model)

# The type checker knows these classes as generic, which they are not at run time.
BaseModelAdmin.__class_getitem__ = classmethod(lambda cls, *_: cls)  # type: ignore[attr-defined]


class ReadOnlyAdmin(admin.ModelAdmin[M]):
    """Read-only: rows that only the platform writes, or that change through the API or admin actions."""

    show_full_result_count = False  # tables may have millions of rows

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False


class AuditedAdmin(admin.ModelAdmin[M]):
    """Writes each change to the audit log, with the names of the changed fields."""

    def log_addition(self, request: HttpRequest, obj: M, message: Any) -> Any:
        self._audit("create", request, obj, message)
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: M, message: Any) -> Any:
        self._audit("update", request, obj, message)
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: models.QuerySet[M]) -> Any:
        for obj in queryset:
            self._audit("delete", request, obj, [])
        return super().log_deletions(request, queryset)

    def _audit(self, action: str, request: HttpRequest, obj: Any, message: Any) -> None:
        assert isinstance(request.user, get_user_model())
        after = {"admin site": json.dumps(message)} if message else {}
        name = str(self.model._meta.verbose_name).lower().replace(" ", "_")
        audit_record(
            action=f"{name}.{action}", actor=request.user, workspace=_workspace_of(obj), target=obj, after=after
        )


def _workspace_of(obj: Any) -> Any:
    """The object's workspace, or the object itself if it is one."""
    return obj.pk if obj._meta.model_name == "workspace" else getattr(obj, "workspace_id", None)
