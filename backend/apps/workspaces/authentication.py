"""Who sends a request, and for which workspace: ``request.auth`` is always an Access."""

import binascii
from base64 import b64decode
from dataclasses import dataclass

from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication, SessionAuthentication, get_authorization_header
from rest_framework.request import Request

from backend.apps.workspaces.models import Role, Scope, User, Workspace
from backend.apps.workspaces.selectors import key_by_text, memberships_of

WORKSPACE_HEADER = "Headrace-Workspace"


@dataclass(frozen=True, slots=True)
class Access:
    """A caller's workspace and role in it; both None for a user without a workspace.

    ``installation_admin`` is the right to what belongs to no workspace. API keys never have it.
    """

    workspace: Workspace | None
    role: Role | None
    installation_admin: bool = False


def access_of(user: User, request: Request) -> Access:
    """The user's access to the workspace that the request names, or to their first one.

    Links, which cannot set headers, name it in the query.
    """
    memberships = memberships_of(user)
    if slug := request.headers.get(WORKSPACE_HEADER) or request.query_params.get("workspace"):
        memberships = memberships.filter(workspace__slug=slug)
    membership = memberships.first()
    workspace, role = (membership.workspace, Role(membership.role)) if membership else (None, None)
    return Access(workspace, role, installation_admin=user.is_superuser)


class ApiKeyAuthentication(BaseAuthentication):
    """``Authorization: Bearer hr_…``."""

    def authenticate(self, request: Request) -> tuple[User, Access] | None:
        text = self.key_text(get_authorization_header(request).decode("latin-1"))
        if text is None:
            return None
        key = key_by_text(text)
        if key is None:
            raise exceptions.AuthenticationFailed("This API key is unknown, expired or revoked.")
        role = Role.EDITOR if Scope.WRITE in key.scopes else Role.VIEWER if Scope.READ in key.scopes else None
        key.created_by.via = f"API key {key.name}"
        return key.created_by, Access(key.workspace, role)

    def key_text(self, header: str) -> str | None:
        """The API key in the header Authorization, if it is one."""
        scheme, _, token = header.partition(" ")
        return token.strip() if scheme.lower() == "bearer" and token.startswith("hr_") else None

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class ApiKeyAsPasswordAuthentication(ApiKeyAuthentication):
    """``Authorization: Basic`` with an API key as the password, for clients that know no other way. The user name is
    not looked at."""

    def key_text(self, header: str) -> str | None:
        scheme, _, credentials = header.partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            return b64decode(credentials.strip(), validate=True).decode("latin-1").partition(":")[2]
        except binascii.Error:
            return ""

    def authenticate_header(self, request: Request) -> str:
        return 'Basic realm="Headrace"'


class WorkspaceSessionAuthentication(SessionAuthentication):
    """The browser's session; the header ``Headrace-Workspace`` selects one of several workspaces."""

    def authenticate(self, request: Request) -> tuple[User, Access] | None:
        authenticated = super().authenticate(request)
        if authenticated is None:
            return None
        return authenticated[0], access_of(authenticated[0], request)
