from django.contrib import admin
from django.contrib.auth.admin import UserAdmin

from backend.apps.workspaces.models import ApiKey, Membership, User, Workspace

admin.site.site_header = "Headrace"
admin.site.register(User, UserAdmin)


class MembershipInline(admin.TabularInline[Membership, Workspace]):
    model = Membership
    extra = 0


@admin.register(Workspace)
class WorkspaceAdmin(admin.ModelAdmin[Workspace]):
    list_display = ["name", "slug", "created_at"]
    inlines = [MembershipInline]


@admin.register(ApiKey)
class ApiKeyAdmin(admin.ModelAdmin[ApiKey]):
    """Keys are made and revoked through the API, which shows their text once."""

    list_display = ["name", "workspace", "prefix", "scopes", "expires_at", "revoked_at"]
    fields = ("name", "workspace", "prefix", "scopes", "expires_at", "revoked_at")
    readonly_fields = fields

    def has_add_permission(self, request: object) -> bool:
        return False
