import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backend.connectors.delta_sharing import DeltaSharing, DeltaSharingConnection, protocol
from backend.domain import json
from backend.domain.capabilities import Batch, DeliveryError, InputRecord
from backend.domain.connector import CheckFailedError, check_connection
from tests.delta_sharing import FOLDER, TOKEN, profile, sharing_server, table_folder
from tests.integration.connectors.suites import ReadBatchSuite, Source, input_reader, opened
from tests.ports import free_ports

CHANGES = {"delta.enableChangeDataFeed": "true"}
FIRST_LOAD = {"type": "changes"}


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    server = sharing_server()
    server.start()
    yield
    server.stop()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_SILENT_SECONDS", 3.0)


class SharedTable(Source):
    """A table with a change data feed, whose rows hold a document each."""

    def __init__(self, connection: dict[str, Any], **options: Any) -> None:
        self.name = f"t_{uuid.uuid4().hex}"
        self.folder = table_folder(self.name)
        self.number = 0
        shared = {"share": "tests", "schema_name": "default", "table": self.name, "mode": FIRST_LOAD, "batch_rows": 7}
        super().__init__(connection, shared | options)
        self.append([])

    async def write(self, bodies: Sequence[bytes]) -> None:
        rows = [{"id": self.number + index, "document": body.decode()} for index, body in enumerate(bodies)]
        self.number += len(rows)
        await asyncio.to_thread(self.append, rows)

    def append(self, rows: list[dict[str, Any]]) -> None:
        schema = pa.schema([("id", pa.int64()), ("document", pa.string())])
        table = pa.Table.from_pylist(rows, schema)
        write_deltalake(self.folder, table, mode="append", configuration=CHANGES)

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.folder)

    async def read(self, breakpoint: Any = None, **options: Any) -> list[Batch]:
        """What one reading returns."""
        reader = input_reader("delta_sharing", self.connection, self.options | options)
        async with opened(reader):
            return [batch async for batch in reader.read(json.loads(json.dumps(breakpoint)))]

    async def estimate(self, breakpoint: Any = None, **options: Any) -> int | None:
        async with opened(input_reader("delta_sharing", self.connection, self.options | options)) as reader:
            estimated: int | None = await reader.estimate(breakpoint)
            return estimated


def documents(batches: Sequence[Batch]) -> list[dict[str, Any]]:
    return [json.loads(record.body) for record in records(batches)]


def records(batches: Sequence[Batch]) -> list[InputRecord]:
    return [record for batch in batches for record in batch.records]


class TestDeltaSharing(ReadBatchSuite):
    type = "delta_sharing"

    @asynccontextmanager
    async def source(self, *, hangs: bool = False) -> AsyncIterator[SharedTable]:
        table = await asyncio.to_thread(SharedTable, profile())
        if not hangs:
            yield table
            return
        async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as silent:
            table.connection = profile(port=silent.sockets[0].getsockname()[1])
            yield table

    def unreachable(self) -> dict[str, Any]:
        return profile(port=free_ports(1)[0])

    def body(self, record: InputRecord) -> bytes:
        return str(json.loads(record.body)["document"]).encode()

    async def test_every_type_of_column_is_read(self) -> None:
        folder = table_folder(name := f"t_{uuid.uuid4().hex}")
        moment = datetime(2026, 10, 25, 0, 30, 0, 123456, UTC)
        row = {
            "id": 2**63 - 1,
            "text": "São Paulo, \"quoted\"\n'東京'",
            "flag": True,
            "amount": Decimal("12345678901234567890.123456789"),
            "ratio": 0.1,
            "day": date(2026, 2, 28),
            "at": moment,
            "local": moment.replace(tzinfo=None),
            "raw": b"\x00\xff",
            "lines": [{"sku": "a", "tags": ["x"]}],
            "names": [("k", "v")],
            "nothing": None,
        }
        line = pa.struct([("sku", pa.string()), ("tags", pa.list_(pa.string()))])
        fields = [
            ("id", pa.int64()),
            ("text", pa.string()),
            ("flag", pa.bool_()),
            ("amount", pa.decimal128(38, 9)),
            ("ratio", pa.float64()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("local", pa.timestamp("us")),
            ("raw", pa.binary()),
            ("lines", pa.list_(line)),
            ("names", pa.map_(pa.string(), pa.string())),
            ("nothing", pa.string()),
            ("country", pa.string()),
            ("year", pa.int32()),
        ]
        rows = [row | {"country": "BR / São", "year": 2026}, row | {"id": 1, "country": None, "year": None}]
        write_deltalake(folder, pa.Table.from_pylist(rows, pa.schema(fields)), partition_by=["country", "year"])
        options = {"share": "tests", "schema_name": "default", "table": name}
        async with opened(input_reader(self.type, profile(), options)) as reader:
            first, second = sorted(documents([b async for b in reader.read(None)]), key=lambda document: document["id"])
        assert second == {
            "id": 2**63 - 1,
            "text": row["text"],
            "flag": True,
            "amount": row["amount"],
            "ratio": Decimal("0.1"),
            "day": "2026-02-28",
            "at": "2026-10-25T00:30:00.123456Z",
            "local": "2026-10-25T00:30:00.123456",
            "raw": "AP8=",
            "lines": [{"sku": "a", "tags": ["x"]}],
            "names": {"k": "v"},
            "nothing": None,
            "country": "BR / São",
            "year": 2026,
        }
        assert list(second) == [name for name, _ in fields]
        assert (first["country"], first["year"]) == (None, None)

    async def test_changes_come_in_the_order_of_versions_with_their_kind(self) -> None:
        async with self.source() as source:
            await source.write([b"one", b"two", b"three"])
            end = (await source.read(key=["id"]))[-1].breakpoint
            source.table.update(predicate="id = 1", new_values={"document": "deux"})
            source.table.delete("id = 2")
            await source.write([b"four"])
            changed = await source.read(end, key=["id"])
            shown = [(d["_change_type"], d["id"], d["document"], d["_commit_version"]) for d in documents(changed)]
            version = end["version"]
            assert shown == [
                ("update_postimage", 1, "deux", version + 1),
                ("delete", 2, "three", version + 2),
                ("insert", 3, "four", version + 3),
            ]
            assert [record.key for record in records(changed)] == [b"1", b"2", b"3"]
            moment = datetime.fromisoformat(documents(changed)[0]["_commit_timestamp"])
            assert abs((datetime.now(UTC) - moment).total_seconds()) < 600
            both = await source.read(end, mode={"type": "changes", "preimages": True})
            assert ("update_preimage", "two") in {(d["_change_type"], d["document"]) for d in documents(both)}

    async def test_changes_can_be_read_from_a_version_on(self) -> None:
        async with self.source() as source:
            await source.write([b"one"])
            await source.write([b"two"])
            await source.write([b"three"])
            batches = await source.read(mode={"type": "changes", "from_version": 2})
            assert [(d["document"], d["_change_type"]) for d in documents(batches)] == [
                ("two", "insert"),
                ("three", "insert"),
            ]
            later = await source.read(mode={"type": "changes", "from_version": 99})
            assert later == []

    async def test_a_snapshot_is_read_once_or_again_with_each_version(self) -> None:
        async with self.source() as source:
            await source.write([b"one", b"two"])
            once, again = {"type": "snapshot"}, {"type": "snapshot", "repeat": True}
            whole = await source.read(mode=once)
            assert sorted(d["document"] for d in documents(whole)) == ["one", "two"]
            assert "_change_type" not in documents(whole)[0]
            end = whole[-1].breakpoint
            assert records(await source.read(end, mode=again)) == []
            await source.write([b"three"])
            assert records(await source.read(end, mode=once)) == []
            anew = await source.read(end, mode=again)
            assert sorted(d["document"] for d in documents(anew)) == ["one", "three", "two"]
            assert not {r.identity for r in records(whole)} & {r.identity for r in records(anew)}

    async def test_an_interrupted_snapshot_goes_on_in_its_version(self) -> None:
        async with self.source() as source:
            for start in range(0, 40, 10):
                await source.write([b"%d" % number for number in range(start, start + 10)])
            whole = await source.read()
            first = whole[0]
            await source.write([b"new"])
            rest = await source.read(first.breakpoint)
            loaded = [d["document"] for d in documents([first, *rest])]
            assert sorted(loaded) == sorted([*map(str, range(40)), "new"])
            assert loaded[-1] == "new"
            (source.folder / "no-history").touch()
            anew = documents(await source.read(first.breakpoint))
            assert sorted(d["document"] for d in anew) == sorted(loaded)

    async def test_large_files_are_read_piece_by_piece(self) -> None:
        async with self.source() as source:
            texts = [f"{number:04} " + random.randbytes(6400).hex() for number in range(600)]
            rows = [{"id": number, "document": text} for number, text in enumerate(texts)]
            await asyncio.to_thread(source.append, rows)
            [file] = [f for f in source.folder.glob("*.parquet") if f.stat().st_size > 3_000_000]
            batches = await source.read(batch_rows=10_000)
            assert [d["document"] for d in documents(batches)] == texts
            sizes = [sum(len(record.body) for record in batch.records) for batch in batches]
            assert max(sizes) < 8 * 1024 * 1024
            assert len([size for size in sizes if size]) > 1
            rest = await source.read(batches[0].breakpoint, batch_rows=10_000)
            assert [d["document"] for d in documents(rest)] == texts[len(batches[0].records) :]
            assert file.exists()

    async def test_a_first_load_is_estimated(self) -> None:
        async with self.source() as source:
            await source.write([b"%d" % number for number in range(30)])
            assert await source.estimate() == 30
            batches = await source.read()
            assert await source.estimate(batches[0].breakpoint) == 23
            assert await source.estimate(batches[-1].breakpoint) is None

    async def test_columns_that_were_added_are_null_in_older_rows(self) -> None:
        async with self.source() as source:
            await source.write([b"old"])
            added = pa.Table.from_pylist([{"id": 9, "document": "new", "extra": 7}])
            write_deltalake(source.folder, added, mode="append", schema_mode="merge")
            rows = {d["document"]: d["extra"] for d in documents(await source.read(mode={"type": "snapshot"}))}
            assert rows == {"old": None, "new": 7}

    async def test_an_expired_address_is_a_transient_fault_that_shows_none(self) -> None:
        async with self.source() as source:
            await source.write([b"one"])
            expired = FOLDER / "expired"
            expired.touch()
            try:
                with pytest.raises(DeliveryError, match="expired") as failed:
                    await source.read()
            finally:
                expired.unlink()
            assert failed.value.retryable
            assert "signature" not in str(failed.value) + failed.value.response

    async def test_a_missing_table_column_or_change_data_feed_is_named(self) -> None:
        async with self.source() as source:
            with pytest.raises(DeliveryError, match="no such table"):
                await source.read(table="absent")
            await source.write([b"one"])
            with pytest.raises(DeliveryError, match="no column absent; it has id, document"):
                await source.read(key=["absent"])
        plain = table_folder(name := f"t_{uuid.uuid4().hex}")
        write_deltalake(plain, pa.table({"id": [1]}))
        end = (await source.read(table=name))[-1].breakpoint
        write_deltalake(plain, pa.table({"id": [2]}), mode="append")
        with pytest.raises(DeliveryError, match="change data feed of this table is not enabled"):
            await source.read(end, table=name)

    async def test_a_wrong_token_is_refused_without_being_shown(self) -> None:
        wrong = "another-" + TOKEN
        async with self.source() as source:
            source.connection = profile(token=wrong)
            with pytest.raises(DeliveryError, match="rejects the profile's token") as failed:
                await source.read()
            reader = input_reader(self.type, source.connection, source.options)
            assert wrong not in str(failed.value.without(reader.secrets()))

    async def test_the_connection_test_lists_shares_or_names_the_profile(self) -> None:
        assert await self._check(profile()) == "Connected to 127.0.0.1; 1 share(s): tests."
        for connection in (self.unreachable(), profile(token="wrong-token")):
            with pytest.raises(CheckFailedError) as failed:
                await self._check(connection)
            assert failed.value.field == "profile"
            assert "wrong-token" not in str(failed.value)

    @pytest.mark.parametrize(
        "file",
        [
            "",
            "{}",
            '{"shareCredentialsVersion": 1, "endpoint": "https://x.example.com/", "bearerToken": ""}',
            '{"shareCredentialsVersion": 1, "endpoint": "file:///etc/passwd", "bearerToken": "t"}',
            '{"shareCredentialsVersion": 1, "endpoint": "https://u:p@x.example.com/", "bearerToken": "t"}',
            '{"shareCredentialsVersion": 2, "type": "oauth_client_credentials", "endpoint": "https://x.example.com/"}',
            '{"shareCredentialsVersion": 1, "endpoint": "https://x.example.com/", "bearerToken": "a\\nb"}',
        ],
    )
    def test_a_file_that_is_no_profile_is_refused(self, file: str) -> None:
        with pytest.raises(ValueError, match="whole profile file"):
            DeltaSharingConnection.model_validate({"profile": {"file": file}})

    async def _check(self, connection: dict[str, Any]) -> str:
        return await check_connection(DeltaSharing, DeltaSharingConnection.model_validate(connection))
