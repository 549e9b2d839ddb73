from collections.abc import Iterator

import hypothesis
import pytest

from backend.domain.registry import PLUGINS
from backend.runtime.layout import Layout
from tests.infra import PLUGINS_FOLDER, REGISTRY_PORT, Server
from tests.installation import Installation, temporary_installation

# Without it, an example that takes 200 ms once is a failure: the machine may be busy with other tests.
hypothesis.settings.register_profile("headrace", deadline=None)
hypothesis.settings.load_profile("headrace")


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgresql: Server, redis_server: Server, secret_keys: None) -> None:
    """Every test that uses the database also gets PostgreSQL, Redis and the encryption keys."""


@pytest.fixture(scope="session")
def installation(project_layout: Layout) -> Iterator[Installation]:
    """The whole platform, started as a user would."""
    with temporary_installation("e2e", project_layout.jars) as running:
        running.environment[PLUGINS] = str(PLUGINS_FOLDER)
        running.environment["HEADRACE_SCHEMA_REGISTRY_URL"] = f"http://127.0.0.1:{REGISTRY_PORT}/apis/ccompat/v7"
        running.up()
        yield running
