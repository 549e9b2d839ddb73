from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
from rest_framework.test import APIClient

from backend.apps.connectors.models import Connector
from backend.apps.workspaces.models import Workspace
from tests import factories
from tests.infra import Server
from tests.kafka_connect import URL, kafka_connect
from tests.waiting import LIMIT_SECONDS

__all__ = ["kafka_connect"]

Execute = Callable[..., dict[str, Any]]


@pytest.fixture
def execute(client: APIClient) -> Execute:
    """Executes statements by REST; the answer must have this status."""

    def post(text: str, status: int = 200, **variables: str) -> dict[str, Any]:
        answer = client.post("/api/v1/sql/", {"text": text, "variables": variables}, format="json")
        assert answer.status_code == status, answer.content
        body: dict[str, Any] = answer.json()
        return body

    return post


@pytest.fixture
def cluster(workspace: Workspace, kafka_connect: Server) -> Iterator[Connector]:
    """The Kafka Connect cluster, registered; without connectors, before and after."""
    yield factories.make_connector(workspace, "kafka_connect", url=URL)
    for name in requests.get(f"{URL}/connectors", timeout=LIMIT_SECONDS).json():
        requests.delete(f"{URL}/connectors/{name}", timeout=LIMIT_SECONDS)
