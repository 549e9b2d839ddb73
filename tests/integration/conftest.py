from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from backend.apps.workspaces.models import User, Workspace
from tests import factories


@pytest.fixture
def workspace(db: None) -> Workspace:
    return factories.make_workspace()


@pytest.fixture
def client_of() -> Callable[[User], APIClient]:
    def make(user: User) -> APIClient:
        client = APIClient()
        client.force_login(user)
        return client

    return make


@pytest.fixture
def client(workspace: Workspace, client_of: Callable[[User], APIClient]) -> APIClient:
    """The workspace's admin."""
    return client_of(factories.admin_of(workspace))


@pytest.fixture
def on_commit(django_capture_on_commit_callbacks: Any) -> Any:
    """Runs what a request does after its transaction, as in a real request."""
    return lambda: django_capture_on_commit_callbacks(execute=True)
