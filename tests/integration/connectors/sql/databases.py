"""The databases that the SQL connector is tested against, and its reader as tests use it."""

import asyncio
import json
import uuid
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from backend.connectors.parts.database import SqlConnection
from backend.connectors.parts.rows.options import PartedSqlInputOptions
from backend.connectors.sql.read import SqlReadBatch
from backend.domain import json as exact
from backend.domain.capabilities import Batch, InputRecord, Part
from tests import infra, mariadb
from tests.infra import DATABASE_URL, PASSWORD, POSTGRESQL_PORT
from tests.mariadb import MARIADB_PORT


class Database:
    """How a dialect is reached by its tests, without the connector."""

    dialect: str
    port: int
    columns: str
    now: str

    def connection(self, **fields: Any) -> dict[str, Any]:
        return {
            "dialect": self.dialect,
            "host": "127.0.0.1",
            "port": self.port,
            "user": "headrace",
            "password": PASSWORD,
            "tls": "disable",
            **fields,
        }

    @abstractmethod
    def run(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Commits the statement; its rows."""

    def table(self, columns: str = "") -> str:
        name = f"t_{uuid.uuid4().hex}"
        self.run(f"CREATE TABLE {name} ({columns or self.columns})")
        return name


class Postgresql(Database):
    dialect = "postgresql"
    port = POSTGRESQL_PORT
    columns = (
        "id bigint PRIMARY KEY, text text, flag boolean, big bigint, amount numeric(40, 9), at timestamptz, "
        "document jsonb"
    )

    @pytest.fixture(autouse=True)
    def _server(self, postgresql: infra.Server) -> None:
        """Runs before every test."""

    def connection(self, **fields: Any) -> dict[str, Any]:
        return super().connection(**{"database": "postgres", **fields})

    def run(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(DATABASE_URL, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []


class Mariadb(Database):
    dialect = "mysql"
    port = MARIADB_PORT
    columns = (
        "id bigint PRIMARY KEY, text longtext, flag boolean, big bigint, amount decimal(40, 9), at timestamp(6) NULL, "
        "document json"
    )

    @pytest.fixture(autouse=True)
    def _server(self, mariadb_server: infra.Server) -> None:
        """Runs before every test."""

    def connection(self, **fields: Any) -> dict[str, Any]:
        return super().connection(**{"database": mariadb.DATABASE, **fields})

    def run(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with mariadb.connected() as connection, connection.cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return list(cursor.fetchall())


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flows: asyncio.Event | None = None) -> None:
    with suppress(OSError):
        while part := await reader.read(65_536):
            if flows is not None:
                await flows.wait()
            writer.write(part)
            await writer.drain()
    writer.close()


async def read(
    connection: dict[str, Any],
    options: dict[str, Any],
    breakpoint: Any = None,
    *,
    ends_at: Any = None,
    batches: int | None = None,
) -> tuple[list[InputRecord], Any]:
    """Reads to the end or, as a reader that is killed, a number of batches; the records and the breakpoint."""
    reader = SqlReadBatch(SqlConnection.model_validate(connection), PartedSqlInputOptions.model_validate(options))
    reader.ends_at = json.loads(json.dumps(ends_at))
    records: list[InputRecord] = []
    left = batches
    try:
        await reader.open()
        stream = reader.read(json.loads(json.dumps(breakpoint)))
        while left is None or left > 0:
            batch: Batch | None = await anext(stream, None)  # type: ignore[call-overload]
            if batch is None:
                break
            records += batch.records
            breakpoint = exact.loads(exact.dumps(batch.breakpoint))
            left = None if left is None else left - 1
    finally:
        await reader.close()
    return records, breakpoint


async def estimate(connection: dict[str, Any], options: dict[str, Any], breakpoint: Any = None) -> int:
    reader = SqlReadBatch(SqlConnection.model_validate(connection), PartedSqlInputOptions.model_validate(options))
    try:
        await reader.open()
        estimated = await reader.estimate(json.loads(json.dumps(breakpoint)))
        assert estimated is not None
        return estimated
    finally:
        await reader.close()


async def plan(connection: dict[str, Any], options: dict[str, Any], breakpoint: Any = None) -> list[Part]:
    reader = SqlReadBatch(SqlConnection.model_validate(connection), PartedSqlInputOptions.model_validate(options))
    try:
        await reader.open()
        return list(await reader.plan(json.loads(json.dumps(breakpoint))))
    finally:
        await reader.close()


def numbers(records: Sequence[InputRecord]) -> list[int]:
    return [exact.loads(record.body)["id"] for record in records]
