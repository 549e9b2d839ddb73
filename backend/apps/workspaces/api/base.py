"""What every workspace-scoped view knows about its caller."""

from rest_framework.request import Request

from backend.apps.workspaces.authentication import Access
from backend.apps.workspaces.models import Role, User, Workspace


def workspace_of(request: Request) -> Workspace:
    """The caller's workspace; RolePermission guarantees that there is one."""
    access = request.auth
    assert isinstance(access, Access)
    assert access.workspace is not None
    return access.workspace


def role_of(request: Request) -> Role:
    """The caller's role in the workspace."""
    access = request.auth
    assert isinstance(access, Access)
    assert access.role is not None
    return access.role


def actor_of(request: Request) -> User:
    """The user who sends the request, or who created the API key."""
    assert isinstance(request.user, User)
    return request.user
