"""Tables of PostgreSQL and MariaDB."""

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar

import psycopg

from backend.domain import json as exact
from tests import mariadb
from tests.e2e.matrix.ends import FIELDS, End, Inlet, Outlet, Record, canonical
from tests.infra import DATABASE_URL, PASSWORD, POSTGRESQL_PORT

_COLUMNS = "id bigint PRIMARY KEY, text {text}, flag boolean, big bigint, amount decimal(40, 9), at {at}, document json"
_INSERT = f"INSERT INTO {{table}} ({', '.join(FIELDS)}) VALUES ({', '.join(['%s'] * len(FIELDS))})"


class _Table(End):
    type = "sql"
    dialect: ClassVar[str]
    columns: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.table = f"t_{self.name.replace('-', '')}"
        self.run(f"CREATE TABLE {self.table} ({self.columns})")

    @abstractmethod
    def run(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]: ...


class _PostgresqlTable(_Table):
    title = "PostgreSQL"
    fixtures: ClassVar[tuple[str, ...]] = ("postgresql",)
    connection = {
        "dialect": "postgresql", "host": "127.0.0.1", "port": POSTGRESQL_PORT, "database": "postgres",
        "user": "headrace", "password": PASSWORD, "tls": "disable",
    }  # fmt: skip
    columns = _COLUMNS.format(text="text", at="timestamptz")

    url = DATABASE_URL

    def run(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []


class _MariadbTable(_Table):
    title = "MariaDB"
    fixtures = ("mariadb_server",)
    connection = {
        "dialect": "mysql", "host": "127.0.0.1", "port": mariadb.MARIADB_PORT, "database": mariadb.DATABASE,
        "user": "headrace", "password": PASSWORD, "tls": "disable",
    }  # fmt: skip
    columns = _COLUMNS.format(text="longtext", at="timestamp(6) NULL")

    def run(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with mariadb.connected() as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            cursor.execute(statement, parameters or None)
            return list(cursor.fetchall())


class _TableInlet(_Table, Inlet):
    def __init__(self) -> None:
        super().__init__()
        mode = {"type": "incrementing", "column": "id"}
        self.options = {"source": {"type": "table", "table": self.table}, "mode": mode}

    def write(self, records: Sequence[Record]) -> None:
        for record in records:
            values = canonical(record)
            if "document" in values:
                values["document"] = exact.dumps(record["document"]).decode()
            if "at" in values:
                values["at"] = datetime.fromisoformat(values["at"])
            self.run(_INSERT.format(table=self.table), *(values.get(name) for name in FIELDS))


class _TableOutlet(_Table, Outlet):
    output: ClassVar[dict[str, Any]] = {"batch": {"messages": 3, "seconds": 0.2}}

    def __init__(self) -> None:
        super().__init__()
        self.options = {"table": self.table}

    def read(self) -> list[Record]:
        rows = self.run(f"SELECT {', '.join(FIELDS)} FROM {self.table}")
        return [dict(zip(FIELDS, row, strict=True)) for row in rows]


class PostgresqlInlet(_PostgresqlTable, _TableInlet):
    pass


class PostgresqlOutlet(_PostgresqlTable, _TableOutlet):
    pass


class MariadbInlet(_MariadbTable, _TableInlet):
    pass


class MariadbOutlet(_MariadbTable, _TableOutlet):
    pass
