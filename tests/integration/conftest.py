from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rest_framework.test import APIClient

from backend.apps.workspaces.models import User, Workspace
from backend.domain import routing
from tests import factories
from tests.infra import KAFKA, Server


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


@pytest.fixture(scope="session")
def pipeline_topics(kafka: Server) -> None:
    """The topics that messages pass."""
    wanted = [NewTopic(topic, 1, 1, config={"max.message.bytes": "4194304"}) for topic in routing.TOPICS]
    admin = AdminClient({"bootstrap.servers": KAFKA})
    for future in admin.create_topics(wanted).values():
        future.result()
