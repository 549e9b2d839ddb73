"""Outputs by JDBC, to PostgreSQL by its driver and to H2 as itself, as SQL Server and as Oracle."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from backend.connectors.jdbc.process import JdbcProcess
from backend.delivery.client import DeliveryClient
from backend.domain import json
from backend.domain.capabilities import BatchRefusedError, DeliveryError, Receipt
from tests.infra import DATABASE_URL, POSTGRESQL_PORT, Server
from tests.integration.connectors.jdbc import databases
from tests.integration.connectors.jdbc.databases import H2, postgresql
from tests.integration.connectors.sql.databases import Postgresql
from tests.integration.connectors.sql.outputs import RowOutputs
from tests.integration.connectors.suites import DeliverBatchSuite, message
from tests.jdbc import H2_PORT, h2_run
from tests.waiting import wait_until_async

pytestmark = pytest.mark.usefixtures("jdbc_drivers")


def messages(*rows: Any) -> list[Any]:
    return [message(json.dumps(row)) for row in rows]


class _Kills:
    """Kills the first Java process that is asked to commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.killed = 0
        answer = JdbcProcess.answer

        async def asked(process: JdbcProcess, *request: str) -> list[str]:
            if request[0] == "commit" and not self.killed:
                self.killed += 1
                process._process.kill()
                process._process.wait()
            return await answer(process, *request)

        monkeypatch.setattr(JdbcProcess, "answer", asked)


class TestJdbcOutput(Postgresql, RowOutputs, DeliverBatchSuite):
    type = "jdbc"
    short_seconds = 15.0

    def connection(self, port: int = POSTGRESQL_PORT, **fields: Any) -> dict[str, Any]:
        return postgresql(port, **fields)

    async def everything(self, table: str) -> list[dict[str, Any]]:
        return await databases.everything(postgresql(), table)

    def disconnect_others(self) -> None:
        named = "application_name = 'PostgreSQL JDBC Driver'"
        self.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {named}")

    async def test_types_of_its_own_are_kept(self) -> None:
        mood = f"mood_{uuid.uuid4().hex}"
        self.run(f"CREATE TYPE {mood} AS ENUM ('glad', 'sad')")
        columns = (
            "id uuid PRIMARY KEY, twice int GENERATED ALWAYS AS (small * 2) STORED, small smallint, raw bytea, "
            "list int[], words text[], day date, clock time, zoned timetz, plain timestamp, lasted interval, "
            f"address inet, real float8, bits bit(3), mood {mood}, moods {mood}[], document json, "
            "binary_document jsonb, word text DEFAULT 'word'"
        )
        table = self.table(columns)
        row = {
            "id": "0199d1a0-0000-7000-8000-000000000000",
            "small": 5,
            "raw": "AP8=",
            "list": [1, None, 3],
            "words": ['a"b', "c,\\d", "NULL"],
            "day": "2026-01-31",
            "clock": "23:59:59.5",
            "zoned": "23:59:59+03:00",
            "plain": "2026-01-31T23:59:59+01:00",
            "lasted": "1 day 02:00:00",
            "address": "2001:db8::1",
            "real": Decimal("0.1"),
            "bits": "101",
            "mood": "sad",
            "moods": ["glad"],
            "document": "a text",
            "binary_document": [True, {"a": Decimal("1.50")}],
        }
        for text in (row, row | {"twice": 1}):
            assert isinstance((await self.deliver({"table": f"public.{table}"}, text))[0], Receipt)
        [(kept,)] = self.run(f"SELECT row_to_json(t)::text FROM {table} AS t")
        written = {
            "twice": 10,
            "raw": "\\x00ff",
            "plain": "2026-01-31T22:59:59",
            "zoned": "23:59:59+03",
            "word": "word",
        }
        assert json.loads(kept) == row | written
        for column, value in (("mood", "bored"), ("list", ["x"]), ("address", "here")):
            [refused] = await self.deliver({"table": table}, row | {column: value})
            assert isinstance(refused, BatchRefusedError)
            assert value[0] in str(refused)
        nulls = {name: None for name in row if name != "id"}
        assert isinstance((await self.deliver({"table": table}, row | nulls))[0], Receipt)
        [(kept,)] = self.run(f"SELECT row_to_json(t)::text FROM {table} AS t")
        assert json.loads(kept) == row | nulls | {"twice": None, "word": "word"}

    async def test_a_row_that_another_writer_inserts_meanwhile_is_updated(self) -> None:
        table = self.table("id bigint PRIMARY KEY, text text")
        client = self.client(self.connection(), {"table": table})
        with psycopg.connect(DATABASE_URL) as other:
            other.execute(f"INSERT INTO {table} VALUES (2, 'of another')".encode())
            delivery = asyncio.create_task(client.deliver_batch(messages(*({"id": n, "text": "x"} for n in range(4)))))
            waiting = f"SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{table}%'"
            await wait_until_async(lambda: asyncio.to_thread(self.run, waiting))
            other.commit()
        assert [type(result) for result in await delivery] == [Receipt] * 4
        await client.close()
        assert self.run(f"SELECT * FROM {table} ORDER BY id") == [(n, "x") for n in range(4)]

    async def test_a_batch_larger_than_a_request_is_still_one_transaction(self) -> None:
        table = self.table("id bigint PRIMARY KEY, text text NOT NULL")
        rows = [{"id": number, "text": "é" * 900_000} for number in range(8)]
        client = self.client(self.connection(), {"table": table})
        with pytest.raises(BatchRefusedError):
            await client.deliver_batch(messages(*rows, {"id": 99, "text": None}))
        assert self.run(f"SELECT count(*) FROM {table}") == [(0,)]
        await client.deliver_batch(messages(*rows))
        await client.close()
        assert self.run(f"SELECT count(*), min(length(text)) FROM {table}") == [(8, 900_000)]

    async def test_a_database_without_transactions_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answer = JdbcProcess.answer

        async def without(process: JdbcProcess, *request: str) -> list[str]:
            answered = await answer(process, *request)
            return [*answered[:-1], ""] if request[0] == "open" else answered

        monkeypatch.setattr(JdbcProcess, "answer", without)
        table = self.table()
        with pytest.raises(DeliveryError, match="has no transactions") as failed:
            await self.deliver({"table": table}, {"id": 1})
        assert (failed.value.reason, failed.value.retryable) == ("configuration", True)
        assert self.run(f"SELECT count(*) FROM {table}") == [(0,)]

    async def test_an_error_tells_no_other_values_of_the_row(self) -> None:
        table = self.table("id bigint PRIMARY KEY, short varchar(5) NOT NULL, text text")
        [refused] = await self.deliver({"table": table}, {"id": 1, "short": None, "text": "planted-value"})
        assert "short" in str(refused)
        assert "planted-value" not in str(refused)


@dataclass(frozen=True)
class _Mode:
    """H2 as a database of that name, with types and defaults of its own."""

    name: str
    parameter: str
    columns: str

    @property
    def connection(self) -> dict[str, Any]:
        return H2 | {"url": f"jdbc:h2:tcp://127.0.0.1:{H2_PORT}/{self.name}{self.parameter}"}


MODES = [
    _Mode("regular", "", "id BIGINT PRIMARY KEY, short VARCHAR(5) NOT NULL, whole INT, moment TIMESTAMP(6)"),
    _Mode(
        "as_sql_server",
        ";MODE=MSSQLServer",
        "id BIGINT PRIMARY KEY, short NVARCHAR(5) NOT NULL, whole INT, moment DATETIME2",
    ),
    _Mode(
        "as_oracle",
        ";MODE=Oracle",
        "id NUMBER(19) PRIMARY KEY, short VARCHAR2(5) NOT NULL, whole INTEGER, moment TIMESTAMP(6)",
    ),
]


class _H2:
    """H2 in one mode, as a connection that rows are delivered by."""

    def __init__(self, java: str, mode: _Mode) -> None:
        self._java, self.mode = java, mode
        self.connection = mode.connection

    async def run(self, statements: str) -> None:
        await asyncio.to_thread(h2_run, self._java, statements, self.connection["url"])

    async def table(self, columns: str = "") -> str:
        name = f"t_{uuid.uuid4().hex}"
        await self.run(f"CREATE TABLE {name} ({columns or self.mode.columns})")
        return name

    async def everything(self, table: str) -> list[dict[str, Any]]:
        return await databases.everything(self.connection, table)

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[DeliveryClient]:
        client = TestJdbcOutput().client(self.connection, options)
        try:
            yield client
        finally:
            await client.close()

    async def deliver(self, options: dict[str, Any], *rows: Any) -> list[Receipt | DeliveryError]:
        async with self.client(**options) as client:
            return await TestJdbcOutput()._halved(client, messages(*rows))


@pytest.fixture(params=MODES, ids=lambda mode: mode.name)
def database(request: pytest.FixtureRequest, h2: Server, jdbc_drivers: str) -> _H2:
    return _H2(jdbc_drivers, request.param)


@pytest.fixture
def regular(h2: Server, jdbc_drivers: str) -> _H2:
    return _H2(jdbc_drivers, MODES[0])


async def test_rows_are_inserted_updated_and_deleted(database: _H2) -> None:
    table = await database.table()
    written = await database.deliver(
        {"table": table, "delete_when": "gone", "key": ["id"]},
        {"id": 1, "short": "a"},
        {"ID": 2, "Short": "b", "whole": 2},
        {"id": 1, "short": "c", "whole": 1},
        {"id": 2, "gone": True},
        {"id": 3, "short": "d", "moment": "2026-01-31T23:59:59.123456-03:00", "unknown": 1},
    )
    assert [result.status for result in written if isinstance(result, Receipt)] == [
        *["written"] * 3,
        "deleted",
        "written",
    ]
    expected = {
        1: {"ID": 1, "SHORT": "c", "WHOLE": 1, "MOMENT": None},
        3: {"ID": 3, "SHORT": "d", "WHOLE": None, "MOMENT": "2026-02-01T02:59:59.123456"},
    }
    assert {row["ID"]: row for row in await database.everything(table)} == expected
    again = await database.deliver({"table": table, "columns": {"id": "n", "short": "s"}}, {"n": 1, "s": "e"})
    assert [type(result) for result in again] == [Receipt]
    expected[1]["SHORT"] = "e"
    assert {row["ID"]: row for row in await database.everything(table)} == expected
    await database.deliver({"table": table, "write": "delete"}, {"id": 3}, {"id": 99})
    [inserted, repeated] = await database.deliver(
        {"table": table, "write": "insert"}, {"id": 4, "short": "f"}, {"id": 1, "short": "g"}
    )
    assert isinstance(inserted, Receipt)
    assert isinstance(repeated, DeliveryError)
    assert repeated.about_message
    assert sorted(row["ID"] for row in await database.everything(table)) == [1, 4]


async def test_a_row_of_nothing_but_its_key_is_inserted_once_and_stays_as_it_is(database: _H2) -> None:
    table = await database.table(
        "region VARCHAR(9), number INT, note VARCHAR(9) DEFAULT 'new', PRIMARY KEY (region, number)"
    )
    rows = [{"region": "south", "number": number} for number in (1, 2, 1)]
    async with database.client(table=table) as client:
        await client.deliver_batch(messages(rows[0] | {"note": "kept"}))
        for _ in range(2):
            assert [type(result) for result in await client.deliver_batch(messages(*rows))] == [Receipt] * 3
    kept = [(row["NUMBER"], row["NOTE"]) for row in await database.everything(table)]
    assert sorted(kept) == [(1, "kept"), (2, "new")]


async def test_bad_rows_fail_alone_and_their_columns_are_named(database: _H2) -> None:
    table = await database.table()
    bad: list[tuple[dict[str, Any], str]] = [
        ({"id": 100, "short": "longer than five"}, "SHORT"),
        ({"id": "abc", "short": "x"}, "ID"),
        ({"id": 100, "short": None}, "SHORT"),
        ({"id": 100}, "SHORT"),
        ({"id": 10**20, "short": "x"}, "ID"),
        ({"id": 100, "short": "x", "whole": Decimal("1e999999999")}, "WHOLE"),
        ({"id": 100, "short": "x", "moment": "2026-02-30T00:00:00"}, "MOMENT"),
        ({"short": "x"}, "ID"),
    ]
    rows = [row for number, (row, _) in enumerate(bad) for row in ({"id": number, "short": "ok"}, row)]
    results = await database.deliver({"table": table}, *rows)
    assert [type(result) for result in results[::2]] == [Receipt] * len(bad)
    for failed, (row, named) in zip(results[1::2], bad, strict=True):
        assert isinstance(failed, DeliveryError), row
        assert (failed.retryable, failed.about_message) == (False, True), row
        assert named in str(failed)
    assert len(await database.everything(table)) == len(bad)


async def test_a_column_that_is_added_later_is_written_to(database: _H2, monkeypatch: pytest.MonkeyPatch) -> None:
    table = await database.table()
    async with database.client(table=table) as client:
        await client.deliver_batch(messages({"id": 1, "short": "a", "later": 1}))
        await database.run(f"ALTER TABLE {table} ADD later INT")
        monkeypatch.setattr("backend.connectors.parts.rows.writer._TABLE_SECONDS", 0)
        await client.deliver_batch(messages({"id": 2, "short": "b", "later": 2}))
    assert {row["ID"]: row["LATER"] for row in await database.everything(table)} == {1: None, 2: 2}


async def test_options_that_do_not_suit_the_table_are_named(database: _H2) -> None:
    table = await database.table()
    await database.run(f"CREATE UNIQUE INDEX u_{table} ON {table} (whole)")
    for options, named in (
        ({"columns": {"id": "id"}}, "Column SHORT of table .* needs a value"),
        ({"columns": {"id": "id", "ID": "n", "short": "s"}}, "are one in table"),
        ({"key": ["moment"]}, "no unique index on MOMENT"),
        ({"key": ["absent"]}, "no column absent"),
    ):
        with pytest.raises(DeliveryError, match=named) as failed:
            await database.deliver({"table": table, **options}, {"id": 1, "short": "a"})
        assert failed.value.retryable
    [written] = await database.deliver({"table": table, "key": ["whole"]}, {"id": 1, "short": "a", "whole": 5})
    assert isinstance(written, Receipt)
    options = {"table": table, "unknown_fields": "refuse"}
    results = await database.deliver(options, {"id": 2, "Short": "b", "colour": "red"}, {"id": 3, "Short": "c"})
    assert "colour" in str(results[0])
    assert isinstance(results[1], Receipt)


async def test_two_writers_of_the_same_new_keys_fail_neither_and_double_nothing(database: _H2) -> None:
    table = await database.table()
    async with database.client(table=table) as one, database.client(table=table) as other:
        for turn in range(8):
            rows = [{"id": turn * 50 + number, "short": "x"} for number in range(50)]
            results = await asyncio.gather(
                one.deliver_batch(messages(*rows)), other.deliver_batch(messages(*reversed(rows)))
            )
            assert not [result for part in results for result in part if isinstance(result, DeliveryError)]
    assert sorted(row["ID"] for row in await database.everything(table)) == list(range(400))


async def test_a_java_process_that_is_killed_in_a_transaction_leaves_nothing_half_written(
    database: _H2, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = await database.table()
    rows = [{"id": 1, "short": "a"}, {"id": 2, "short": "b", "whole": 2}, {"id": 3, "short": "c"}]
    kills = _Kills(monkeypatch)
    async with database.client(table=table) as client:
        with pytest.raises(DeliveryError) as failed:
            await client.deliver_batch(messages(*rows))
        assert kills.killed
        assert (failed.value.reason, failed.value.retryable) == ("connection", True)
        assert await database.everything(table) == []
        assert [type(result) for result in await client.deliver_batch(messages(*rows))] == [Receipt] * 3
    assert len(await database.everything(table)) == 3


COLUMNS = (
    "id INT PRIMARY KEY, small SMALLINT, whole BIGINT, amount DECIMAL(40, 9), rough DOUBLE PRECISION, flag BOOLEAN, "
    "on_day DATE, at_time TIME(6), plain TIMESTAMP(6), moment TIMESTAMP(6) WITH TIME ZONE, raw VARBINARY(10), "
    "large BLOB, mark UUID, document JSON, text VARCHAR(100), long_text CLOB, "
    "twice INT GENERATED ALWAYS AS (small * 2), word VARCHAR(9) DEFAULT 'word'"
)


async def test_every_kind_of_value_is_kept(regular: _H2) -> None:
    table = await regular.table(COLUMNS)
    row = {
        "small": -7,
        "whole": 2**63 - 1,
        "amount": Decimal("12345678901234567890.123456789"),
        "rough": Decimal("0.1"),
        "flag": True,
        "on_day": "2026-02-28",
        "at_time": "23:59:59.123456",
        "plain": "2026-01-31T23:59:59.123456",
        "moment": "2026-01-31T23:59:59.5-03:00",
        "raw": "AP8=",
        "large": "AP8=",
        "mark": "0199d1a0-0000-7000-8000-000000000000",
        "document": {"a": [1, "é", {"b": None}], "n": Decimal("0.10")},
        "text": 'São Paulo, "quoted", it\'s\na \\ line; %s ? 日本語 🚀',
        "long_text": "é" * 100_000,
    }
    others = {
        "small": "-7",
        "whole": Decimal("1e2"),
        "amount": True,
        "rough": "-Infinity",
        "flag": 0,
        "on_day": "2026-02-28T10:00:00Z",
        "at_time": "23:59",
        "plain": "2026-01-31 23:59:59+0100",
        "moment": "2026-01-31T23:59:59",
        "raw": "\\x00ff",
        "document": "a text",
        "text": {"a": Decimal("1.0")},
        "long_text": 1,
    }
    written = await regular.deliver(
        {"table": table},
        {"id": 1, **row},
        {"id": 2, "twice": 9, **others},
        {"id": 3, "text": "", "word": None},
    )
    assert not [result for result in written if isinstance(result, DeliveryError)]
    read = {one["ID"]: {name.lower(): value for name, value in one.items()} for one in await regular.everything(table)}
    assert {name: read[1][name] for name in row} == row
    kept = {
        "small": -7,
        "whole": 100,
        "amount": 1,
        "rough": "-Infinity",
        "flag": False,
        "on_day": "2026-02-28",
        "at_time": "23:59:00",
        "plain": "2026-01-31T22:59:59",
        "moment": "2026-01-31T23:59:59+00:00",
        "raw": "AP8=",
        "document": "a text",
        "text": '{"a":1.0}',
        "long_text": "1",
        "twice": -14,
        "word": "word",
    }
    assert {name: read[2][name] for name in kept} == kept
    assert {name: value for name, value in read[3].items() if value is not None} == {"id": 3, "text": ""}


async def test_a_value_that_its_column_does_not_take_is_an_error_that_names_both(regular: _H2) -> None:
    table = await regular.table(COLUMNS)
    misfits: list[tuple[str, Any, str]] = [
        ("small", 2**15, "SMALLINT: 32768 is out of range"),
        ("whole", 2**63, "BIGINT: 9223372036854775808 is out of range"),
        ("whole", Decimal("1.5"), "BIGINT: 1.5 is not a whole number"),
        ("whole", [1], r"BIGINT: \[1\] is not a whole number"),
        ("amount", "much", '"much" is not a number'),
        ("amount", Decimal("1e999999999"), "is out of range"),
        ("rough", Decimal("1e400"), "is out of range"),
        ("flag", "perhaps", 'BOOLEAN: "perhaps" is neither true nor false'),
        ("on_day", "2026-02-30", "is not a date"),
        ("on_day", 5, "DATE: 5 is not a date"),
        ("at_time", "25:00", "is not a time"),
        ("plain", True, "TIMESTAMP: true is not a date and time"),
        ("moment", "soon", "is not a date and time"),
        ("raw", "not base64!", "is not base64"),
        ("raw", "?" * 500, r"\.\.\.\" is not base64"),
    ]
    async with regular.client(table=table) as client:
        for column, value, said in misfits:
            with pytest.raises(BatchRefusedError, match=f"^Column {column.upper()} takes .*{said}.$") as refused:
                await client.deliver_batch(messages({"id": 1, column: value}))
            assert (refused.value.retryable, refused.value.about_message) == (False, True)
            assert refused.value.reason.startswith("sql_22")
        await client.deliver_batch(messages({"id": 1}))
    assert len(await regular.everything(table)) == 1
