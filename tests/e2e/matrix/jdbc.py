"""Tables that are read by a JDBC driver."""

from tests.e2e.matrix.sql import PostgresqlInlet
from tests.infra import PASSWORD, POSTGRESQL_PORT


class JdbcInlet(PostgresqlInlet):
    type, fixtures = "jdbc", ("postgresql", "jdbc_drivers")
    connection = {
        "url": f"jdbc:postgresql://127.0.0.1:{POSTGRESQL_PORT}/postgres", "user": "headrace", "password": PASSWORD,
    }  # fmt: skip
