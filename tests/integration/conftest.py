import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import redis
from asgiref.sync import sync_to_async
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from django.db import connections
from pyspark.sql import SparkSession
from rest_framework.test import APIClient

from backend.apps.manager import grpc as manager
from backend.apps.workspaces.models import User, Workspace
from backend.domain import limits, routing
from backend.manager_api import snapshot as stored
from backend.resilience.gate import Gate
from backend.runtime import class_archives
from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from tests import factories
from tests.infra import KAFKA, MANAGER_PORT, REDIS_URL, SERVICE_TOKEN, Server
from tests.integration.kafka_ends import end_offset

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
    """The topics that messages pass, once they have leaders."""
    topics = [NewTopic(topic, 1, 1, config={"max.message.bytes": str(limits.TOPIC_BYTES)}) for topic in routing.TOPICS]
    admin = AdminClient({"bootstrap.servers": KAFKA})
    for future in admin.create_topics(topics).values():
        future.result()
    for topic in routing.TOPICS:
        end_offset(topic)


@pytest.fixture(scope="module")
def empty_configuration(redis_server: Server) -> None:
    """A snapshot that data-plane processes start from, to which a test may add pipelines."""
    redis.from_url(REDIS_URL).set(stored.COMPLETE, b"")


@pytest.fixture(scope="session")
def spark(project_layout: Layout) -> Iterator[SparkSession]:
    """A session with Kafka's source and sink."""
    os.environ |= {"JAVA_HOME": str(java_home(project_layout)), "PYSPARK_PYTHON": sys.executable}
    archive = class_archives.archive(project_layout.jars, java_home(project_layout), class_archives.SPARK)
    conf = {
        "spark.ui.enabled": "false",
        "spark.jars": ",".join(str(jar) for jar in (project_layout.jars / "spark").glob("*.jar")),
        "spark.driver.defaultJavaOptions": " ".join(class_archives.options(archive)),
    }
    builder: SparkSession.Builder = SparkSession.builder
    session = builder.master("local[1]").config(map=conf).getOrCreate()
    yield session
    session.stop()


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


@pytest.fixture
async def gate(redis_server: Server) -> AsyncIterator[Gate]:
    """Breakers, rate limits and the delivered ledger in a real Redis."""
    gate = Gate(REDIS_URL)
    gate.start()
    yield gate
    await gate.close()
