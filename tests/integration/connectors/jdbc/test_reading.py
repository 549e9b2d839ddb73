"""The JDBC connector and its inputs, with the drivers of PostgreSQL, H2 and SQL Server."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import ValidationError

from backend.connectors.jdbc import Jdbc, JdbcConnection
from backend.domain import json
from backend.domain.capabilities import DeliveryError, InputRecord
from backend.domain.connector import CheckFailedError, check_connection
from backend.settings import platform_settings
from tests.infra import POSTGRESQL_PORT, Server
from tests.integration.connectors.jdbc.databases import H2, documents, of_table, postgresql, read
from tests.integration.connectors.sql.databases import Postgresql
from tests.integration.connectors.suites import ReadBatchSuite, Source, input_reader, opened
from tests.integration.connectors.suites.common import forbid_every_address
from tests.jdbc import H2_PORT, h2_run

pytestmark = pytest.mark.usefixtures("jdbc_drivers")


class _Documents(Source):
    def __init__(self, database: Postgresql, connection: dict[str, Any], table: str) -> None:
        super().__init__(connection, of_table(table, {"type": "incrementing", "column": "id"}, batch_rows=7))
        self._database = database

    async def write(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            statement = f"INSERT INTO {self.options['source']['table']} (document) VALUES (%s)"
            await asyncio.to_thread(self._database.run, statement, body.decode())


class TestJdbc(Postgresql, ReadBatchSuite):
    type = "jdbc"

    @asynccontextmanager
    async def source(self, *, hangs: bool = False) -> AsyncIterator[Source]:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            connection = postgresql(silent.getsockname()[1] if hangs else POSTGRESQL_PORT)
            columns = "id bigserial PRIMARY KEY, document text"
            yield _Documents(self, connection, await asyncio.to_thread(self.table, columns))

    def unreachable(self) -> dict[str, Any]:
        return postgresql(1, password="planted-password-of-jdbc")

    def body(self, record: InputRecord) -> bytes:
        return str(json.loads(record.body)["document"]).encode()

    async def test_every_kind_of_value_is_kept(self) -> None:
        table = self.table(
            "id bigint PRIMARY KEY, big numeric, small real, flag boolean, raw bytea, at timestamptz, "
            "local timestamp, day date, hour time, document jsonb, missing text"
        )
        self.run(
            f"INSERT INTO {table} VALUES (9223372036854775807, 12345678901234567890.50, 0.1, true, '\\x00ff', "
            "'2026-01-31 23:59:59.123456-03', '2026-10-25 02:30:00', '2026-02-28', '23:59:59.5', "
            '\'{"a": [1, "é"]}\', NULL)'
        )
        [row] = documents(await read(postgresql(), of_table(table, {"type": "bulk"})))
        assert row == {
            "id": 2**63 - 1,
            "big": json.loads(b"12345678901234567890.50"),
            "small": json.loads(b"0.1"),
            "flag": True,
            "raw": "AP8=",
            "at": "2026-02-01T02:59:59.123456+00:00",
            "local": "2026-10-25T02:30:00",
            "day": "2026-02-28",
            "hour": "23:59:59.5",
            "document": {"a": [1, "é"]},
            "missing": None,
        }

    async def test_how_much_there_is_to_read_is_counted(self) -> None:
        table = self.table()
        self.run(f"INSERT INTO {table} (id) SELECT generate_series(1, 30)")
        options = of_table(table, {"type": "incrementing", "column": "id"})
        async with opened(input_reader("jdbc", postgresql(), options)) as reader:
            assert await reader.estimate(None) == 30
            assert await reader.estimate({"position": ["i:20"]}) == 10

    async def test_the_driver_reaches_the_network_only_through_the_guard(self, monkeypatch: pytest.MonkeyPatch) -> None:
        forbid_every_address(monkeypatch)
        monkeypatch.setattr(JdbcConnection, "hosts", lambda _: {})
        with pytest.raises(CheckFailedError, match="HEADRACE_OUTBOUND_ALLOW") as failed:
            await check(postgresql())
        assert failed.value.field == "url"

    async def test_a_connection_test_says_what_was_reached(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert (await check(postgresql())).startswith("Connected to PostgreSQL ")
        settings = platform_settings().model_copy(update={"jdbc_drivers": ""})
        monkeypatch.setattr("backend.connectors.jdbc.process.platform_settings", lambda: settings)
        with pytest.raises(CheckFailedError, match="HEADRACE_JDBC_DRIVERS"):
            await check(postgresql())

    @pytest.mark.parametrize(
        ("connection", "field", "named"),
        [
            (postgresql(password="wrong"), "password", "rejects the user name or the password"),
            (postgresql(url=f"jdbc:postgresql://127.0.0.1:{POSTGRESQL_PORT}/absent"), "url", "absent"),
            (postgresql(url="jdbc:postgresql://unknown.invalid/postgres"), "url", "is not known"),
            ({"url": "jdbc:sqlserver://unknown.invalid;databaseName=shop"}, "url", "is not known"),
            ({"url": "jdbc:sqlserver://127.0.0.1:1;databaseName=shop"}, "url", "No connection"),
            ({"url": "jdbc:oracle:thin:@127.0.0.1:1521:shop"}, "url", "there are h2-"),
        ],
    )
    async def test_a_wrong_connection_is_explained_at_its_field(
        self, connection: dict[str, Any], field: str, named: str
    ) -> None:
        with pytest.raises(CheckFailedError, match=named) as failed:
            await check(connection)
        assert failed.value.field == field

    async def test_tables_and_columns_that_are_missing_are_named(self) -> None:
        with pytest.raises(DeliveryError, match="no table absent"):
            await read(postgresql(), of_table("absent", {"type": "bulk"}))
        with pytest.raises(DeliveryError, match="no column absent; there are id, "):
            await read(postgresql(), of_table(self.table(), {"type": "incrementing", "column": "absent"}))
        query = {"source": {"type": "query", "query": "SELEKT 1"}, "mode": {"type": "bulk"}}
        with pytest.raises(DeliveryError, match="rejects the statement"):
            await read(postgresql(), query)


async def test_another_database_is_read_in_every_mode(h2: Server, jdbc_drivers: str) -> None:
    # H2 keeps names in capitals, and each kind of position returns as a parameter of its own type.
    columns = "region VARCHAR(9), number INT, at TIMESTAMP(6), ordered TIMESTAMP(6) WITH TIME ZONE"
    moments = "TIMESTAMP '2026-01-01 00:00:00.00000{n}', TIMESTAMP WITH TIME ZONE '2026-01-01 00:00:00.5-03:00'"
    rows = ", ".join(f"('é''{n}', {n}, {moments.format(n=n)})" for n in range(5))
    create = f"CREATE TABLE orders ({columns}, PRIMARY KEY (region, number)); INSERT INTO orders VALUES {rows}"
    await asyncio.to_thread(h2_run, jdbc_drivers, create)
    modes: list[dict[str, Any]] = [
        {"type": "incrementing", "column": "number"},
        {"type": "timestamp", "timestamp_column": "at"},
        {"type": "timestamp_incrementing", "timestamp_column": "ordered", "incrementing_column": "number"},
        {"type": "bulk"},
    ]
    for mode in modes:
        options = of_table("orders", mode, batch_rows=2)
        whole = await read(H2, options)
        assert [row["NUMBER"] for row in documents(whole)] == [0, 1, 2, 3, 4], mode
        rest = await read(H2, options, whole[0].breakpoint)
        assert [row["NUMBER"] for row in documents(rest)] == [2, 3, 4], mode
        assert whole[0].records[0].key == b'["\xc3\xa9\'0","0"]'
    assert documents(await read(H2, options, whole[-1].breakpoint)) == []
    assert documents(whole)[0]["ORDERED"] == "2026-01-01T00:00:00.5-03:00"
    query = {"type": "query", "query": "SELECT number AS n FROM orders WHERE region LIKE '%3' ;"}
    assert documents(await read(H2, {"source": query, "mode": {"type": "incrementing", "column": "n"}})) == [{"N": 3}]


async def check(fields: dict[str, Any]) -> str:
    return await check_connection(Jdbc, JdbcConnection.model_validate(fields))


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("jdbc:sqlserver://db.example.com:1433;databaseName=shop", ["db.example.com"]),
        ("jdbc:sqlserver://;serverName=db.example.com;databaseName=shop", ["db.example.com"]),
        ("jdbc:oracle:thin:@//db.example.com:1521/shop", ["db.example.com"]),
        ("jdbc:oracle:thin:@db.example.com:1521:shop", ["db.example.com"]),
        ("jdbc:oracle:thin:@(DESCRIPTION=(ADDRESS=(HOST=db.example.com)(PORT=1521)))", ["db.example.com"]),
        ("jdbc:postgresql://a.example.com:5432,b.example.com:5432/shop", ["a.example.com", "b.example.com"]),
        ("jdbc:mysql://[2001:db8::1]:3306/shop", ["[2001:db8::1]"]),
        (f"jdbc:h2:tcp://127.0.0.1:{H2_PORT}/tests", ["127.0.0.1"]),
    ],
)
def test_hosts_are_found_in_addresses(url: str, hosts: list[str]) -> None:
    assert JdbcConnection(url=url).hosts() == {"url": hosts}


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:postgresql://db.example.com/shop?user=a&password=b",
        "jdbc:sqlserver://db.example.com;user=a;password=b",
        "jdbc:mysql://a:b@db.example.com/shop",
        "jdbc:oracle:thin:a/b@db.example.com:1521:shop",
    ],
)
def test_an_address_with_a_password_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="must not contain a password"):
        JdbcConnection(url=url)
