from typing import TYPE_CHECKING

from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from backend.apps.workspaces.authentication import Access
from backend.apps.workspaces.models import Role

if TYPE_CHECKING:  # a circular import at run time: rest_framework.views loads this module
    from rest_framework.views import APIView


class RolePermission(BasePermission):
    """Reading requires viewer, changing requires editor; a view's ``roles`` overrides this by action."""

    message = "Your role in this workspace does not allow this."

    def has_permission(self, request: Request, view: "APIView") -> bool:
        access = request.auth
        if not isinstance(access, Access) or access.workspace is None or access.role is None:
            return False
        usual = Role.VIEWER if request.method in SAFE_METHODS else Role.EDITOR
        needed = getattr(view, "roles", {}).get(getattr(view, "action", None), usual)
        return access.role.includes(needed)


class InstallationPermission(BasePermission):
    """What belongs to the installation and to no workspace."""

    message = (
        "Only administrators of the installation may do this: users whom the admin site shows as superusers. API keys "
        "belong to a workspace and may not."
    )

    def has_permission(self, request: Request, view: "APIView") -> bool:
        return isinstance(request.auth, Access) and request.auth.installation_admin
