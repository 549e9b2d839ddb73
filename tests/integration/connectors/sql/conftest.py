from tests.mariadb import mariadb_server  # noqa: F401
