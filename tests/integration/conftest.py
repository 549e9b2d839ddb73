import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from django.db import connections
from rest_framework.test import APIClient

from backend.apps.manager import grpc as manager
from backend.apps.workspaces.models import User, Workspace
from backend.domain import routing
from tests import factories
from tests.infra import KAFKA, MANAGER_PORT, REDIS_URL, SERVICE_TOKEN, Server

MANAGER_ADDRESS = f"127.0.0.1:{MANAGER_PORT}"


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
    topics = [NewTopic(topic, 1, 1, config={"max.message.bytes": "4194304"}) for topic in routing.TOPICS]
    admin = AdminClient({"bootstrap.servers": KAFKA})
    for future in admin.create_topics(topics).values():
        future.result()


class RunningManager:
    """The gRPC service on the test's event loop; may be stopped and started."""

    async def start(self) -> None:
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(
            manager.serve(address=MANAGER_ADDRESS, service_token=SERVICE_TOKEN, redis_url=REDIS_URL, stop=self._stop)
        )

    async def stop(self) -> None:
        self._stop.set()
        await self._task


@pytest.fixture
async def running() -> AsyncIterator[RunningManager]:
    service = RunningManager()
    await service.start()
    yield service
    await service.stop()
    await sync_to_async(connections.close_all)()
