import pytest

from tests.infra import Server


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgresql: Server, redis_server: Server, secret_keys: None) -> None:
    """Any test that uses the database gets PostgreSQL, Redis and the encryption keys with it."""
