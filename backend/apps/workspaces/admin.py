from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.db.models import Count, QuerySet
from django.http import HttpRequest

from backend.apps.audit.admin_bases import AuditedAdmin, ReadOnlyAdmin
from backend.apps.workspaces.models import ApiKey, Membership, User, Workspace
from backend.apps.workspaces.services import api_key_revoke

admin.site.site_header = admin.site.site_title = "Headrace"
admin.site.index_title = "Administration"


class MembershipInline(admin.TabularInline[Membership, Workspace]):
    model = Membership
    extra = 0
    autocomplete_fields = ["user"]


@admin.register(User)
class PersonAdmin(UserAdmin[User], AuditedAdmin[User]):
    """Local accounts and users from the identity provider, who have a subject."""

    list_display = ["username", "email", "subject", "is_active", "is_superuser", "last_login"]
    fieldsets = (*(UserAdmin.fieldsets or ()), ("Identity provider", {"fields": ["subject"]}))
    readonly_fields = ["subject"]


@admin.register(Workspace)
class WorkspaceAdmin(AuditedAdmin[Workspace]):
    list_display = ["name", "slug", "members", "created_at"]
    search_fields = ["name", "slug"]
    inlines = [MembershipInline]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Workspace]:
        return super().get_queryset(request).annotate(count=Count("membership"))

    @admin.display(ordering="count")
    def members(self, workspace: Any) -> int:
        return int(workspace.count)

    def has_delete_permission(self, request: HttpRequest, obj: Workspace | None = None) -> bool:
        return False  # its pipelines would keep running in the data plane


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin[ApiKey]):
    """Keys are created in the console or through the API, which show their text once."""

    list_display = ["name", "workspace", "prefix", "scopes", "created_by", "expires_at", "revoked_at"]
    list_filter = ["workspace", ("revoked_at", admin.EmptyFieldListFilter), "expires_at"]
    search_fields = ["name", "prefix"]
    fields = ("name", "workspace", "prefix", "scopes", "created_by", "created_at", "expires_at", "revoked_at")
    actions = ["revoke"]

    @admin.action(description="Revoke: the keys stop working at once")
    def revoke(self, request: HttpRequest, keys: QuerySet[ApiKey]) -> None:
        assert isinstance(request.user, User)
        for key in keys.filter(revoked_at=None).select_related("workspace"):
            api_key_revoke(key=key, actor=request.user)
