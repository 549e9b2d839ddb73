"""Real nodes of the gateway over the tests' database, and workspaces with collections."""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
from django.db import connection

from backend.apps.workspaces.models import Workspace
from tests.gateways import Gateways, Login, TestCollection, gateways, make_collection, reading_workspace
from tests.infra import DATABASE_URL, VAR


@pytest.fixture(scope="session")
def database_url(django_db_setup: None) -> str:
    """Of the database that the tests use, for other processes."""
    return urlsplit(DATABASE_URL)._replace(path=f"/{connection.settings_dict['NAME']}").geturl()


@pytest.fixture(scope="module")
def one(database_url: str) -> Iterator[Gateways]:
    """One node. All nodes over one database are one cluster, so no others may run meanwhile."""
    with gateways(VAR / "gateway-one", database_url, 1) as nodes:
        yield nodes


@pytest.fixture
def nodes(one: Gateways) -> Gateways:
    return one


@dataclass
class Reading:
    """A workspace of its own for each test."""

    workspace: Workspace
    login: Login

    def collection(self, partitions: int = 3, name: str = "", **connection: object) -> TestCollection:
        return make_collection(self.workspace, partitions, name, **connection)


@pytest.fixture
def reading(transactional_db: None) -> Reading:
    return Reading(*reading_workspace())
