from collections.abc import Iterator

import hypothesis
import pytest
from django.contrib.contenttypes.management import create_contenttypes
from django.db.backends.postgresql.operations import DatabaseOperations
from django.db.models.signals import post_migrate

from backend.domain.registry import PLUGINS
from backend.runtime.layout import Layout
from tests.infra import FILES_ROOT, JDBC_DRIVERS, PLUGINS_FOLDER, QUICK_INSTALLATION, REGISTRY_PORT, Server
from tests.installation import Installation, temporary_installation

# Without it, an example that takes 200 ms once is a failure: the machine may be busy with other tests.
hypothesis.settings.register_profile("headrace", deadline=None, max_examples=40)
hypothesis.settings.register_profile("long", deadline=None, max_examples=5000, derandomize=False)
hypothesis.settings.load_profile("headrace")


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgresql: Server, redis_server: Server, secret_keys: None) -> None:
    """Every test that uses the database also gets PostgreSQL, Redis and the encryption keys."""


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> None:
    """Tables are emptied after each test with transactions of its own, which has to be quick: rows are deleted, since
    truncating makes new files for every table and index, and Django's lists of permissions are not written again."""
    post_migrate.disconnect(create_contenttypes)
    post_migrate.disconnect(dispatch_uid="django.contrib.auth.management.create_permissions")
    DatabaseOperations.sql_flush = _deletions  # type: ignore[assignment]


def _deletions(operations: DatabaseOperations, style: object, tables: list[str], **_: bool) -> list[str]:
    deletions = [f"DELETE FROM {operations.quote_name(table)}" for table in tables]
    # In this role a session checks no foreign keys.
    return ["SET session_replication_role = replica", *deletions, "SET session_replication_role = DEFAULT"]


@pytest.fixture(scope="session")
def installation(project_layout: Layout) -> Iterator[Installation]:
    """The whole platform, started as a user would."""
    with temporary_installation("e2e", project_layout.jars) as running:
        running.environment |= QUICK_INSTALLATION
        running.environment[PLUGINS] = str(PLUGINS_FOLDER)
        running.environment["HEADRACE_FILES_ROOT"] = str(FILES_ROOT)
        running.environment["HEADRACE_JDBC_DRIVERS"] = str(JDBC_DRIVERS)
        running.environment["HEADRACE_SCHEMA_REGISTRY_URL"] = f"http://127.0.0.1:{REGISTRY_PORT}/apis/ccompat/v7"
        running.up()
        yield running
