"""Tables that are read and written by a JDBC driver."""

from tests.e2e.matrix.ends import End
from tests.e2e.matrix.sql import PostgresqlInlet, PostgresqlOutlet
from tests.infra import PASSWORD, POSTGRESQL_PORT


class _ByDriver(End):
    type, title, fixtures = "jdbc", "PostgreSQL by JDBC", ("postgresql", "jdbc_drivers")
    connection = {
        "url": f"jdbc:postgresql://127.0.0.1:{POSTGRESQL_PORT}/postgres", "user": "headrace", "password": PASSWORD,
    }  # fmt: skip


class JdbcInlet(_ByDriver, PostgresqlInlet):
    pass


class JdbcOutlet(_ByDriver, PostgresqlOutlet):
    pass
