"""What the admin pages of several apps share."""

from typing import TypeVar

from django.contrib import admin
from django.db import models

M = TypeVar("M", bound=models.Model)


class ReadOnlyAdmin(admin.ModelAdmin[M]):
    """For looking: rows that only the platform writes."""

    def has_add_permission(self, request: object) -> bool:
        return False

    def has_change_permission(self, request: object, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: object, obj: object = None) -> bool:
        return False
