"""What every output to the tables of a database does, whatever the way to the database is."""

import asyncio
import socket
import uuid
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest

from backend.delivery.client import DeliveryClient
from backend.domain import json as exact
from backend.domain.capabilities import BatchRefusedError, DeliveryError, Receipt
from tests.integration.connectors.sql.databases import Database, pipe, read
from tests.integration.connectors.suites import Server, message
from tests.waiting import LIMIT_SECONDS

RECORDS = [
    {"id": 1, "text": 'São Paulo, "quoted", it\'s\na \\ line; %s 日本語 🚀', "flag": True},
    {"id": 2, "text": None, "flag": False, "big": 2**63 - 1},
    {"id": -(2**63), "text": "", "big": -1},
    {"id": 4, "amount": Decimal("12345678901234567890.123456789")},
    {"id": 5, "at": "2026-01-31T23:59:59.123456-03:00"},
    {"id": 6, "document": {"a": [1, {"b": None}, "x,y"], "n": Decimal("0.10"), "big": 2**63}},
    {"id": 7, "text": "é" * 450_000},
]


class _Rows(Server):
    """The rows of a table as the messages that they were."""

    def __init__(self, database: Database, table: str) -> None:
        super().__init__(database.connection(), {"table": table, "write": "insert"})
        self._database = database

    async def delivered(self) -> list[bytes]:
        rows = await asyncio.to_thread(self._database.run, f"SELECT n, text FROM {self.options['table']}")
        texts = [f'{{"n": {n}' + (f', "text": "{text}"}}' if text is not None else "}") for n, text in rows]
        return [text.encode() for text in texts]


class RowOutputs(Database):
    """The tests of an output to tables. Beside it, a class inherits the suite of its capability."""

    large_text = "text"
    moment = "timestamptz"
    """A type with date and time."""
    short_seconds = 1.0
    """Limit of a delivery that is cut off, within which one that works has been opened."""

    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Server]:
        if hangs:
            with socket.create_server(("127.0.0.1", 0)) as silent:
                yield Server(self.connection(port=silent.getsockname()[1]), {"table": "t"})
            return
        yield _Rows(self, await asyncio.to_thread(self.table, f"n bigint, text {self.large_text}"))

    def unreachable(self) -> dict[str, Any]:
        return self.connection(port=1, password="planted-password-of-rows")

    async def deliver(self, options: dict[str, Any], *documents: Any) -> Sequence[Receipt | DeliveryError]:
        """Delivers as the engine does: a batch that is refused is halved."""
        client = self.client(self.connection(), options)  # type: ignore[attr-defined]
        try:
            return await self._halved(client, [message(exact.dumps(document)) for document in documents])
        finally:
            await client.close()

    async def _halved(self, client: DeliveryClient, messages: Sequence[Any]) -> list[Receipt | DeliveryError]:
        try:
            return list(await client.deliver_batch(messages))
        except BatchRefusedError as error:
            if len(messages) == 1:
                return [error]
            middle = len(messages) // 2
            return [*await self._halved(client, messages[:middle]), *await self._halved(client, messages[middle:])]

    async def test_every_kind_of_value_is_kept(self) -> None:
        table = self.table()
        results = await self.deliver({"table": table}, *RECORDS)
        assert not [result for result in results if isinstance(result, DeliveryError)]
        read = {row["id"]: row for row in await self.everything(table)}
        for record in RECORDS:
            row = read[record["id"]]
            for field, value in record.items():
                if field == "at":
                    assert row["at"] == "2026-02-01T02:59:59.123456+00:00"
                else:
                    assert row[field] == value, field
            assert [row[field] for field in row.keys() - record.keys()] == [None] * len(row.keys() - record.keys())

    async def everything(self, table: str) -> list[dict[str, Any]]:
        options = {"source": {"type": "table", "table": table}, "mode": {"type": "bulk"}}
        records, _ = await read(self.connection(), options)
        return [exact.loads(record.body) for record in records]

    async def test_a_repeated_message_updates_its_row_and_a_deletion_removes_it(self) -> None:
        table = self.table()
        options = {"table": table, "delete_when": "gone"}
        for _ in range(2):
            results = await self.deliver(
                options,
                {"id": 1, "text": "first"},
                {"id": 2, "text": "second"},
                {"id": 1, "text": "third"},
                {"id": 2, "gone": True},
                {"id": 3, "text": "x"},
                {"id": 3, "flag": True},
            )
            assert not [result for result in results if isinstance(result, DeliveryError)]
        rows = sorted((row["id"], row["text"], row["flag"]) for row in await self.everything(table))
        assert rows == [(1, "third", None), (3, "x", True)]
        await self.deliver({"table": table, "write": "delete"}, {"id": 1}, {"id": 99})
        assert [row["id"] for row in await self.everything(table)] == [3]

    async def test_a_composite_key_and_mapped_columns(self) -> None:
        table = self.table("region varchar(20), number int, total decimal(10, 2), PRIMARY KEY (region, number)")
        columns = {"region": "where.region", "number": "/n", "total": "sum"}
        document = {"where": {"region": "south"}, "n": 1, "sum": 1.5, "other": 1}
        await self.deliver({"table": table, "columns": columns}, document, document | {"sum": Decimal("2.25")})
        assert await self.everything(table) == [{"region": "south", "number": 1, "total": Decimal("2.25")}]

    @pytest.mark.parametrize(
        ("document", "named"),
        [
            ({"id": 100, "short": "longer than five"}, "short"),
            ({"id": "abc", "short": "x"}, "id"),
            ({"id": 100, "short": None}, "short"),
            ({"id": 2**63, "short": "x"}, "id"),
            ({"id": 100, "short": "x", "whole": Decimal("1.5")}, "whole"),
            ({"id": 100, "short": "x", "moment": "yesterday noon"}, "moment"),
            ({"short": "x"}, "id"),
            ([1], "JSON"),
        ],
    )
    async def test_only_the_message_at_fault_fails_and_its_column_is_named(self, document: Any, named: str) -> None:
        table = self.table(f"id bigint PRIMARY KEY, short varchar(5) NOT NULL, whole int, moment {self.moment}")
        good = [{"id": number, "short": "ok"} for number in range(9)]
        results = await self.deliver({"table": table}, *good[:4], document, *good[4:])
        failed = [result for result in results if isinstance(result, DeliveryError)]
        assert len(failed) == 1
        assert results[4] is failed[0]
        assert not failed[0].retryable
        assert named in str(failed[0])
        assert len(await self.everything(table)) == 9

    async def test_unknown_fields_are_refused_when_asked_to(self) -> None:
        table = self.table()
        results = await self.deliver(
            {"table": table, "unknown_fields": "refuse"}, {"id": 1, "colour": "red"}, {"id": 2}
        )
        assert "colour" in str(results[0])
        assert isinstance(results[1], Receipt)

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            ({"table": "nowhere"}, "no table nowhere"),
            ({"key": ["absent"]}, "no column absent"),
            ({"columns": {"id": "id", "absent": "a"}}, "no column absent"),
            ({"key": ["text"]}, "no unique index on text"),
            ({"columns": {"text": "text"}}, "Column id"),
        ],
    )
    async def test_options_that_do_not_suit_the_table_are_named(self, options: dict[str, Any], named: str) -> None:
        table = self.table("id bigint PRIMARY KEY, text text")
        with pytest.raises(DeliveryError, match=named) as failed:
            await self.deliver({"table": table, **options}, {"id": 1})
        assert failed.value.retryable

    async def test_a_name_is_never_a_part_of_the_statement(self) -> None:
        quote = '"' if self.dialect == "postgresql" else "`"
        name = f"we%srd{quote}; DROP TABLE x; -- {uuid.uuid4().hex[:8]}"
        quoted = quote + name.replace(quote, quote * 2) + quote
        await asyncio.to_thread(self.run, f"CREATE TABLE {quoted} (id int PRIMARY KEY, {quoted} varchar(20))")
        results = await self.deliver({"table": name}, {"id": 1, name: "%s"}, {"id": 1, name: "é%"})
        assert [type(result) for result in results] == [Receipt, Receipt]
        assert await self.everything(name) == [{"id": 1, name: "é%"}]

    async def test_a_column_that_is_added_or_removed_meanwhile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        table = self.table("id bigint PRIMARY KEY, old int")
        client = self.client(self.connection(), {"table": table})  # type: ignore[attr-defined]
        await client.deliver_batch([message(b'{"id": 1, "old": 1, "new": 1}')])
        self.run(f"ALTER TABLE {table} DROP COLUMN old")
        with pytest.raises(DeliveryError) as failed:
            await client.deliver_batch([message(b'{"id": 2, "old": 1, "new": 2}')])
        assert failed.value.retryable
        self.run(f"ALTER TABLE {table} ADD COLUMN new int")
        monkeypatch.setattr("backend.connectors.parts.rows.writer._TABLE_SECONDS", 0)
        await client.deliver_batch([message(b'{"id": 2, "old": 1, "new": 2}')])
        await client.close()
        assert [(row["id"], row["new"]) for row in await self.everything(table)] == [(1, None), (2, 2)]

    async def test_a_connection_that_is_lost_is_replaced(self) -> None:
        table = self.table()
        client = self.client(self.connection(), {"table": table})  # type: ignore[attr-defined]
        await client.deliver_batch([message(b'{"id": 1}')])
        self.disconnect_others()
        with pytest.raises(DeliveryError) as failed:
            await client.deliver_batch([message(b'{"id": 2}')])
        assert failed.value.retryable
        await client.deliver_batch([message(b'{"id": 2}')])
        await client.close()

    async def test_a_server_that_stops_answering_is_cut_off_and_comes_back(self) -> None:
        table = self.table()
        flows = asyncio.Event()
        flows.set()

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_connection("127.0.0.1", self.port)
            await asyncio.gather(pipe(reader, back, flows), pipe(there, writer, flows))

        proxy = await asyncio.start_server(forward, "127.0.0.1", 0)
        connection = self.connection(port=proxy.sockets[0].getsockname()[1])
        limit = self.short_seconds
        client = self.client(connection, {"table": table}, timeout_seconds=limit)  # type: ignore[attr-defined]
        await client.deliver_batch([message(b'{"id": 1}')])
        flows.clear()
        async with asyncio.timeout(LIMIT_SECONDS):
            with pytest.raises(DeliveryError) as failed:
                await client.deliver_batch([message(b'{"id": 2}')])
        assert (failed.value.reason, failed.value.retryable) == ("timeout", True)
        flows.set()
        await client.deliver_batch([message(b'{"id": 2}')])
        await client.close()
        proxy.close()
        assert len(await self.everything(table)) == 2

    @abstractmethod
    def disconnect_others(self) -> None: ...
