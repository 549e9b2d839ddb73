"""The SQL input, against PostgreSQL and MariaDB."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from backend.domain import json as exact
from backend.domain.capabilities import DeliveryError, InputRecord
from tests.infra import DATABASE_URL
from tests.integration.connectors.sql.databases import Database, Mariadb, Postgresql, estimate, numbers, plan, read
from tests.integration.connectors.suites import ReadBatchSuite, Source
from tests.waiting import wait_until_async


class _Documents(Source):
    """A table of documents, as they were written."""

    def __init__(self, database: Database, connection: dict[str, Any], table: str) -> None:
        source = {"type": "table", "table": table}
        mode = {"type": "incrementing", "column": "id"}
        super().__init__(connection, {"source": source, "mode": mode, "batch_rows": 7})
        self._database = database

    async def write(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            statement = f"INSERT INTO {self.options['source']['table']} (document) VALUES (%s)"
            await asyncio.to_thread(self._database.run, statement, body.decode())


class TestPostgresqlPolling(Postgresql, ReadBatchSuite):
    type = "sql"

    @asynccontextmanager
    async def source(self, *, hangs: bool = False) -> AsyncIterator[Source]:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            connection = self.connection(**({"port": silent.getsockname()[1]} if hangs else {}))
            columns = "id bigserial PRIMARY KEY, document text"
            yield _Documents(self, connection, await asyncio.to_thread(self.table, columns))

    def unreachable(self) -> dict[str, Any]:
        return self.connection(port=1, password="planted-password-of-sql")

    def body(self, record: InputRecord) -> bytes:
        return str(exact.loads(record.body)["document"]).encode()


class _Inputs(Database):
    def source(self, table: str, mode: dict[str, Any], **options: Any) -> dict[str, Any]:
        return {"source": {"type": "table", "table": table}, "mode": mode, "batch_rows": 2, **options}

    async def test_bulk_reads_all_rows_once_and_again_as_new_messages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        table = self.table()
        self.run(f"INSERT INTO {table} (id) VALUES (1), (2), (3), (4), (5)")
        options = self.source(table, {"type": "bulk"})
        killed, breakpoint = await read(self.connection(), options, batches=1)
        assert numbers(killed) == [1, 2]
        rest, end = await read(self.connection(), options, breakpoint)
        assert numbers(rest) == [3, 4, 5]
        assert await read(self.connection(), options, end) == ([], end)
        whole, _ = await read(self.connection(), options)
        assert [record.identity for record in whole] == [record.identity for record in (*killed, *rest)]
        assert len({record.identity for record in whole}) == 5
        assert [record.key for record in whole] == [b"1", b"2", b"3", b"4", b"5"]
        again = self.source(table, {"type": "bulk", "repeat_minutes": 1})
        assert (await read(self.connection(), again, end))[0] == []
        repeated, _ = await read(self.connection(), again, end | {"finished": 0})
        assert numbers(repeated) == [1, 2, 3, 4, 5]
        assert not {record.identity for record in repeated} & {record.identity for record in whole}

    async def test_incrementing_reads_what_is_new(self) -> None:
        table = self.table()
        options = self.source(table, {"type": "incrementing", "column": "id"})
        assert (await read(self.connection(), options))[0] == []
        self.run(f"INSERT INTO {table} (id) VALUES (1), (2), (3)")
        killed, breakpoint = await read(self.connection(), options, batches=1)
        assert numbers(killed) == [1, 2]
        rest, end = await read(self.connection(), options, breakpoint)
        assert numbers(rest) == [3]
        self.run(f"INSERT INTO {table} (id) VALUES (4), (9223372036854775807)")
        new, end = await read(self.connection(), options, end)
        assert numbers(new) == [4, 2**63 - 1]
        assert (await read(self.connection(), options, end))[0] == []

    async def test_timestamps_read_what_changed(self) -> None:
        kind = "timestamptz" if self.dialect == "postgresql" else "datetime(6)"
        table = self.table(f"region varchar(9), number int, at {kind}, id int, PRIMARY KEY (region, number)")
        insert = f"INSERT INTO {table} VALUES "
        self.run(insert + ", ".join(f"('r', {n}, '2026-01-01 00:00:00.000001', {n})" for n in range(5)))
        mode = {"type": "timestamp", "timestamp_column": "at"}
        options = self.source(table, mode)
        killed, breakpoint = await read(self.connection(), options, batches=1)
        rest, end = await read(self.connection(), options, breakpoint)
        assert numbers([*killed, *rest]) == [0, 1, 2, 3, 4]
        assert {record.key for record in killed} == {b'["r","0"]', b'["r","1"]'}
        self.run(f"UPDATE {table} SET at = '2026-01-01 00:00:00.000002' WHERE number = 1")
        changed, end = await read(self.connection(), options, end)
        assert numbers(changed) == [1]
        assert changed[0].identity not in {record.identity for record in killed}
        self.run(f"UPDATE {table} SET at = CURRENT_TIMESTAMP WHERE number = 2")
        assert (await read(self.connection(), self.source(table, mode | {"delay_seconds": 3600}), end))[0] == []
        by_number = mode | {"type": "timestamp_incrementing", "incrementing_column": "id", "delay_seconds": 0}
        ordered, _ = await read(self.connection(), self.source(table, by_number))
        assert numbers(ordered) == [0, 3, 4, 1, 2]

    async def test_a_large_table_is_read_in_several_turns(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("backend.connectors.parts.rows.reader._READ_SECONDS", -1)
        table = self.table()
        self.run(f"INSERT INTO {table} (id) VALUES (1), (2), (3)")
        for mode in ({"type": "bulk"}, {"type": "incrementing", "column": "id"}):
            first, breakpoint = await read(self.connection(), self.source(table, mode))
            second, _ = await read(self.connection(), self.source(table, mode), breakpoint)
            assert (numbers(first), numbers(second)) == ([1, 2], [3])

    @pytest.mark.parametrize("mode", [{"type": "bulk"}, {"type": "incrementing", "column": "id"}])
    async def test_several_tables_are_read_each_from_where_it_was_left(self, mode: dict[str, Any]) -> None:
        tables = [self.table() for _ in range(3)]
        for table, rows in zip(tables, ("(1), (2), (3)", "(11)", "(21), (22)"), strict=True):
            self.run(f"INSERT INTO {table} (id) VALUES {rows}")
        options = self.several(tables, mode)
        whole, _ = await read(self.connection(), options)
        assert numbers(whole) == [1, 2, 3, 11, 21, 22]
        assert [record.source for record in whole] == [tables[0]] * 3 + [tables[1]] + [tables[2]] * 2
        assert len({record.identity for record in whole}) == 6
        alone, _ = await read(self.connection(), self.source(tables[0], mode))
        assert [record.identity for record in alone] == [record.identity for record in whole[:3]]
        killed, breakpoint = await read(self.connection(), options, batches=1)
        assert numbers(killed) == [1, 2]
        rest, end = await read(self.connection(), options, breakpoint)
        assert sorted(numbers(rest)) == [3, 11, 21, 22]
        added = self.table()
        self.run(f"INSERT INTO {added} (id) VALUES (31)")
        new, end = await read(self.connection(), self.several([tables[2], added], mode), end)
        assert numbers(new) == [31]
        assert (await read(self.connection(), self.several([tables[2], added], mode), end))[0] == []

    async def test_a_large_table_does_not_hold_up_those_after_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("backend.connectors.parts.rows.reader._READ_SECONDS", -1)
        tables = [self.table() for _ in range(2)]
        self.run(f"INSERT INTO {tables[0]} (id) VALUES (1), (2), (3), (4), (5)")
        self.run(f"INSERT INTO {tables[1]} (id) VALUES (11)")
        turns, breakpoint = [], None
        for _ in range(7):
            records, breakpoint = await read(
                self.connection(), self.several(tables, {"type": "incrementing", "column": "id"}), breakpoint
            )
            turns.append(numbers(records))
        assert turns.index([11]) < turns.index([3, 4])
        assert sorted(number for turn in turns for number in turn) == [1, 2, 3, 4, 5, 11]

    def several(self, tables: list[str], mode: dict[str, Any]) -> dict[str, Any]:
        return {"source": {"type": "tables", "tables": tables}, "mode": mode, "batch_rows": 2}

    async def test_a_query_is_read_like_a_table(self) -> None:
        table = self.table()
        self.run(f"INSERT INTO {table} (id, text) VALUES (1, 'a%b'), (2, 'c'), (3, 'a%d')")
        query = f"SELECT id, text AS name FROM {table} WHERE text LIKE 'a%' ;"
        options: dict[str, Any] = {
            "source": {"type": "query", "query": query},
            "mode": {"type": "incrementing", "column": "id"},
            "key": ["id"],
        }
        records, end = await read(self.connection(), options)
        assert [exact.loads(record.body) for record in records] == [{"id": 1, "name": "a%b"}, {"id": 3, "name": "a%d"}]
        self.run(f"INSERT INTO {table} (id, text) VALUES (4, 'a'), (5, 'b')")
        assert numbers((await read(self.connection(), options, end))[0]) == [4]

    @pytest.mark.parametrize("mode", [{"type": "bulk"}, {"type": "incrementing", "column": "id"}])
    async def test_how_much_there_is_to_read_is_estimated(self, mode: dict[str, Any]) -> None:
        table = self.table()
        for start in range(0, 2000, 500):
            rows = ", ".join(f"({number}, 'x')" for number in range(start, start + 500))
            self.run(f"INSERT INTO {table} (id, text) VALUES {rows}")
        self.run(f"ANALYZE {'TABLE ' if self.dialect == 'mysql' else ''}{table}")
        options = self.source(table, mode, batch_rows=1500)
        whole = await estimate(self.connection(), options)
        assert 1000 < whole < 4000
        _, breakpoint = await read(self.connection(), options, batches=1)
        assert 100 < await estimate(self.connection(), options, breakpoint) < whole
        _, end = await read(self.connection(), options, breakpoint)
        assert await estimate(self.connection(), options, end) < 100
        query = options | {"source": {"type": "query", "query": f"SELECT * FROM {table} WHERE text LIKE '%x%'"}}
        assert await estimate(self.connection(), query) > 0

    async def test_a_large_table_is_divided_into_parts_that_are_together_the_whole(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("backend.connectors.parts.rows.reader._LARGE_TABLE_ROWS", 1000)
        table = self.filled(2000)
        options = self.source(table, {"type": "bulk", "readers": 5}, batch_rows=100)
        whole, end = await read(self.connection(), options)
        parts = await plan(self.connection(), options)
        assert len(parts) == 5
        assert [part.begins_at.get("after") for part in parts[1:]] == [part.ends_at["until"] for part in parts[:-1]]
        records = []
        for begins_at, ends_at in parts:
            killed, breakpoint = await read(self.connection(), options, begins_at, ends_at=ends_at, batches=1)
            rest, breakpoint = await read(self.connection(), options, breakpoint, ends_at=ends_at)
            assert len(killed) == 100
            assert 200 < len(killed) + len(rest) < 800
            assert breakpoint.keys() == end.keys()
            assert await read(self.connection(), options, breakpoint, ends_at=ends_at) == ([], breakpoint)
            records += [*killed, *rest]
        assert [record.identity for record in records] == [record.identity for record in whole]
        repeated = self.source(table, {"type": "bulk", "readers": 2, "repeat_minutes": 1})
        first, _ = await plan(self.connection(), repeated, end | {"finished": 0})
        assert first.begins_at == {"run": 2}
        assert await plan(self.connection(), repeated, end) == []

    def filled(self, rows: int) -> str:
        """A table with so many rows, of which statistics are known."""
        table = self.table()
        for start in range(0, rows, 500):
            values = ", ".join(f"({number}, 'x')" for number in range(start, start + 500))
            self.run(f"INSERT INTO {table} (id, text) VALUES {values}")
        self.run(f"ANALYZE {'TABLE ' if self.dialect == 'mysql' else ''}{table}")
        return table

    async def test_what_is_not_large_or_not_one_table_is_read_in_one_piece(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table, bulk = self.filled(2000), {"type": "bulk"}
        assert await plan(self.connection(), self.source(table, bulk)) == []
        monkeypatch.setattr("backend.connectors.parts.rows.reader._LARGE_TABLE_ROWS", 1000)
        assert len(await plan(self.connection(), self.source(table, bulk))) == 4
        begun = {"run": 1, "after": ["7"]}
        assert await plan(self.connection(), self.source(table, bulk), begun) == []
        assert await plan(self.connection(), self.source(table, bulk), {"run": 1, "finished": 7}) == []
        self.run(f"CREATE VIEW v_{table} AS SELECT * FROM {table}")
        for source in (
            self.source(table, bulk | {"readers": 1}),
            self.source(table, {"type": "incrementing", "column": "id"}),
            self.several([table], bulk),
            self.source(f"v_{table}", bulk),
            self.source(table, bulk) | {"source": {"type": "query", "query": f"SELECT * FROM {table}"}, "key": ["id"]},
        ):
            assert await plan(self.connection(), source) == []

    async def test_a_table_that_the_database_does_not_divide_in_time_is_an_error(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("backend.connectors.parts.rows.reader._PLAN_SECONDS", 0.0)
        with pytest.raises(DeliveryError, match="One reader does not ask for that") as failed:
            await plan(self.connection(), self.source(self.filled(500), {"type": "bulk"}))
        assert (failed.value.reason, failed.value.retryable) == ("timeout", True)

    async def test_a_query_cannot_write(self) -> None:
        table = self.table()
        query = f"SELECT 1 AS id) AS r; DELETE FROM {table}; SELECT (1"
        options = {"source": {"type": "query", "query": query}, "mode": {"type": "bulk"}}
        self.run(f"INSERT INTO {table} (id) VALUES (1)")
        with pytest.raises(DeliveryError):
            await read(self.connection(), options)
        assert self.run(f"SELECT count(*) FROM {table}") == [(1,)]

    async def test_batches_are_bounded_in_bytes(self) -> None:
        table = self.table()
        for number in range(6):
            self.run(f"INSERT INTO {table} (id, text) VALUES (%s, %s)", number, "x" * 900_000)
        options = self.source(table, {"type": "bulk"}, batch_rows=100, batch_bytes=2_000_000)
        first, _ = await read(self.connection(), options, batches=1)
        assert numbers(first) == [0, 1]

    async def test_a_schema_that_changes_between_batches(self) -> None:
        table = self.table("id bigint PRIMARY KEY, old int")
        self.run(f"INSERT INTO {table} VALUES (1, 1)")
        options = self.source(table, {"type": "incrementing", "column": "id"})
        _, end = await read(self.connection(), options)
        self.run(f"ALTER TABLE {table} ADD COLUMN added int")
        self.run(f"ALTER TABLE {table} DROP COLUMN old")
        self.run(f"INSERT INTO {table} VALUES (2, 7)")
        records, end = await read(self.connection(), options, end)
        assert [exact.loads(record.body) for record in records] == [{"id": 2, "added": 7}]
        self.run(f"ALTER TABLE {table} RENAME COLUMN id TO number")
        with pytest.raises(DeliveryError, match=r"(?i)column.*id"):
            await read(self.connection(), options, end)

    async def test_a_missing_table_and_a_missing_column_are_named(self) -> None:
        with pytest.raises(DeliveryError, match="no table absent"):
            await read(self.connection(), self.source("absent", {"type": "bulk"}))
        with pytest.raises(DeliveryError, match="absent"):
            await read(self.connection(), self.source(self.table(), {"type": "incrementing", "column": "absent"}))


class TestPostgresqlInput(Postgresql, _Inputs):
    async def test_rows_of_transactions_that_commit_late_are_read(self) -> None:
        table = self.table("id bigserial PRIMARY KEY, text text")
        options = self.source(table, {"type": "incrementing", "column": "id"})
        with psycopg.connect(DATABASE_URL) as late:
            with psycopg.connect(DATABASE_URL) as early:
                # The one that commits first has the older transaction id and the newer row.
                early.execute("SELECT pg_current_xact_id()")
                late.execute(f"INSERT INTO {table} (text) VALUES ('late')")
                early.execute(f"INSERT INTO {table} (text) VALUES ('early')")
                early.commit()
            records, breakpoint = await read(self.connection(), options)
            assert records == []
            records, breakpoint = await read(self.connection(), options, breakpoint)
            assert records == []
            late.commit()
        self.run(f"INSERT INTO {table} (text) VALUES ('newest')")
        records, breakpoint = await read(self.connection(), options, breakpoint)
        assert numbers(records) == [1, 2, 3]
        assert (await read(self.connection(), options, breakpoint))[0] == []

    async def test_parts_have_as_many_rows_however_keys_are_distributed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("backend.connectors.parts.rows.reader._LARGE_TABLE_ROWS", 1000)
        table = self.table('"100%" text, number bigint, id bigint, PRIMARY KEY ("100%", number)')
        self.run(
            f"INSERT INTO {table} SELECT CASE WHEN n < 8000 THEN 'a' ELSE 'é' || n END, power(n, 3), n "
            "FROM generate_series(1, 10000) AS n"
        )
        self.run(f"ANALYZE {table}")
        options = self.source(table, {"type": "bulk", "readers": 16}, batch_rows=10_000)
        read_in_parts = [
            await read(self.connection(), options, begins_at, ends_at=ends_at)
            for begins_at, ends_at in await plan(self.connection(), options)
        ]
        sizes = [len(records) for records, _ in read_in_parts]
        assert len(sizes) == 16
        assert all(300 < size < 1200 for size in sizes)
        assert sorted(number for records, _ in read_in_parts for number in numbers(records)) == list(range(1, 10_001))

    async def test_a_statement_that_divides_a_table_ends_with_its_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("backend.connectors.parts.rows.reader._LARGE_TABLE_ROWS", 1000)
        table = self.filled(2000)
        monkeypatch.setattr("backend.connectors.parts.rows.reader._PLAN_SECONDS", 0.5)
        with psycopg.connect(DATABASE_URL) as locking:
            locking.execute(f"LOCK TABLE {table}")
            with pytest.raises(DeliveryError, match=r"within 0\.5 s"):
                await plan(self.connection(), self.source(table, {"type": "bulk"}))
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s"
            # The server is asked to end it, and does so a moment later.
            await wait_until_async(lambda: asyncio.to_thread(lambda: self.run(waiting, f"%{table}%") == [(0,)]))


class TestMariadbInput(Mariadb, _Inputs):
    """The same, on MariaDB."""

    async def test_only_keys_of_one_whole_number_are_divided(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("backend.connectors.parts.rows.reader._LARGE_TABLE_ROWS", 0)
        for columns in ("id varchar(9) PRIMARY KEY", "id int, number int, PRIMARY KEY (id, number)"):
            table = self.table(columns)
            self.run(
                f"INSERT INTO {table} (id) VALUES (1)" if "varchar" in columns else f"INSERT INTO {table} VALUES (1, 2)"
            )
            assert await plan(self.connection(), self.source(table, {"type": "bulk"})) == []
        assert await plan(self.connection(), self.source(self.table(), {"type": "bulk"})) == []
