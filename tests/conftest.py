import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.runtime.layout import Layout
from tests.infra import Server
from tests.installation import Installation


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgresql: Server, redis_server: Server, secret_keys: None) -> None:
    """Any test that uses the database gets PostgreSQL, Redis and the encryption keys with it."""


@pytest.fixture(scope="session")
def installation(project_layout: Layout) -> Iterator[Installation]:
    """The whole platform, as a user starts it."""
    var = Path(tempfile.mkdtemp(prefix="headrace-e2e-"))
    var.chmod(0o755)  # PostgreSQL may run as another user
    (var / "jars").symlink_to(project_layout.jars)
    found = Installation(var)
    try:
        found.up()
        yield found
    finally:
        found.down()
    shutil.rmtree(var)
