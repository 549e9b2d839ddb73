"""What the tests of the connectors of files share."""

import socket
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from backend.connectors.parts.files import store as stores
from backend.domain.capabilities import DeliveryError, InputRecord
from backend.domain.message import new_message_id
from tests.integration.connectors.suites import ExportSuite, ReadBatchSuite, Source, Store, opened


@contextmanager
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never answers, on which calls are cut off after a second."""
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "CALL_SECONDS", 1.0)
        yield server.getsockname()[1]


class FilesStore(Store, Source):
    """A store as both ends of a connector. ``options`` are those of reading."""

    def __init__(self, connection: dict[str, Any]) -> None:
        super().__init__(connection)
        self.options = {"format": {"type": "json_lines"}, "settle_seconds": 0}
        self.registered = {}

    @abstractmethod
    async def put(self, name: str, body: bytes) -> None:
        """Stores a file as any other program would."""

    async def write(self, bodies: Sequence[bytes]) -> None:
        for start in range(0, len(bodies), 7):
            lines = b"".join(body + b"\n" for body in bodies[start : start + 7])
            await self.put(f"in/{new_message_id()}.jsonl", lines)


class FilesCases(ReadBatchSuite, ExportSuite):
    """Both directions of a connector of files."""

    @abstractmethod
    @asynccontextmanager
    def store(self, *, hangs: bool = False) -> AsyncIterator[FilesStore]:
        """A server that works, with a place that is empty, or one that never answers."""
        yield FilesStore({})  # type: ignore[abstract,misc]

    @asynccontextmanager
    async def source(self, *, hangs: bool = False) -> AsyncIterator[FilesStore]:
        async with self.store(hangs=hangs) as store:
            yield store

    async def read(self, store: FilesStore, breakpoint: Any = None) -> tuple[list[InputRecord], Any]:
        """The records of one reading, and where the next one begins."""
        batches = await self._batches(store, breakpoint)
        records = [record for batch in batches for record in batch.records]
        return records, batches[-1].breakpoint if batches else breakpoint

    async def test_only_files_with_the_prefix_and_of_the_pattern_are_read(self) -> None:
        async with self.store() as store:
            names = [
                "in/orders/São Paulo #1 'x' & +100%.jsonl",
                "in/orders/b.txt",
                "in/other/c.jsonl",
                "in/ordersd.jsonl",
            ]
            for number, name in enumerate(names):
                await store.put(name, b'{"n": %d}' % number)
            store.options |= {"prefix": "in/orders", "pattern": "*.jsonl"}
            records, _ = await self.read(store)
            assert sorted(record.body for record in records) == [b'{"n": 0}', b'{"n": 3}']

    async def test_an_upload_that_was_left_is_found_and_removed(self) -> None:
        def is_ours(name: str) -> bool:
            return name.endswith(".csv")

        async with self.store() as store, opened(self.export(store)) as export:
            await export.commit(await export.begin("folder/a.csv"))
            left = await export.begin("folder/deeper/b.csv")
            await export.write(left, 1, b"1")
            assert [upload async for upload in export.unfinished("folder/", is_ours, 3600)] == []
            [found] = [upload async for upload in export.unfinished("folder/", is_ours, -3600)]
            assert found.items() <= left.items()
            await export.abort(found)
            assert [upload async for upload in export.unfinished("folder/", is_ours, -3600)] == []
            assert await store.everything() == {"out/folder/a.csv": b""}
            with pytest.raises(DeliveryError) as failed:
                await export.commit(left)
            assert failed.value.reason == "upload_gone"

    async def test_a_file_that_is_replaced_is_read_again_with_other_identities(self) -> None:
        async with self.store() as store:
            await store.put("in/a.jsonl", b'{"n": 1}\n')
            first, breakpoint = await self.read(store)
            await store.put("in/a.jsonl", b'{"n": 1}\n{"n": 2}\n')
            second, _ = await self.read(store, breakpoint)
            assert [record.body for record in second] == [b'{"n": 1}', b'{"n": 2}']
            assert not {record.identity for record in first} & {record.identity for record in second}

    async def test_a_file_that_is_changed_while_it_is_read_is_reported(self) -> None:
        async with self.store() as store:
            line = b'{"n": "%s"}\n' % (b"x" * 990)
            await store.put("in/a.jsonl", line * 6000)
            async with opened(self.reader(store)) as reader:
                batches = reader.read(None)
                await anext(batches)
                await store.put("in/a.jsonl", b"{}\n")
                read = [batch async for batch in batches]
            assert sum(len(batch.records) for batch in read) < 6000
            records, _ = await self.read(store, read[-1].breakpoint if read else None)
            assert [record.body for record in records] == [b"{}"]
