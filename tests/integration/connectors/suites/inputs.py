"""For the capabilities ``read_batch`` and ``read_stream``."""

import asyncio
import signal
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from backend.domain import json
from backend.domain.capabilities import Batch, DeliveryError, InputRecord, ReadStream
from backend.domain.connector import RuntimeConnector
from backend.domain.inputs.connector import ConnectorInput
from tests.integration.connectors.suites.common import Reaching, forbid_every_address, hides_secrets, opened
from tests.waiting import LIMIT_SECONDS, wait_until_async

DOCUMENTS: tuple[Any, ...] = (
    {"text": "São Paulo – 東京 🚆 'single' \"double\", comma; line\nbreak\ttab \\ \u0000"},
    {"null": None, "true": True, "false": False, "empty": "", "list": [], "object": {}},
    {"large": 2**63, "larger": 2**64 + 1, "least": -(2**63), "amount": "12345678901234567890.123456789"},
    {"at": "2026-10-25T02:30:00.123456+02:00", "on": "2026-02-28", "zulu": "2026-10-25T00:30:00Z"},
    {"order": {"lines": [{"sku": "a", "price": 0.1}, {"sku": "b", "tags": ["x", ["y"]]}]}},
    {"body": "ü" * 450_000},
)
"""What connectors tend to change: compared field by field with what arrives."""


class Source(ABC):
    """A real server that a connector reads from."""

    def __init__(
        self, connection: dict[str, Any], options: dict[str, Any], registered: dict[str, Any] | None = None
    ) -> None:
        self.connection = connection
        self.options = options
        self.registered = registered or {}
        self.position: Any = None
        """What Headrace would keep of what was acknowledged, for streams whose source keeps nothing."""

    @abstractmethod
    async def write(self, bodies: Sequence[bytes]) -> None:
        """Adds a record for each, in order."""


class _Inputs(Reaching):
    knows_lag = False
    """Whether the connector can tell how many records wait."""

    @abstractmethod
    @asynccontextmanager
    async def source(self, *, hangs: bool = False) -> AsyncIterator[Source]:
        """A server that works and has nothing to read, or one that accepts connections and never answers."""
        yield Source({}, {})  # type: ignore[abstract]

    @abstractmethod
    async def _read(self, source: Source, count: int) -> list[InputRecord]:
        """The first records, as they are read."""

    @abstractmethod
    async def _failure(
        self, connection: dict[str, Any], options: dict[str, Any], registered: dict[str, Any] | None = None
    ) -> DeliveryError:
        """Why nothing can be read."""

    def body(self, record: InputRecord) -> bytes:
        """What was written for that record."""
        return record.body

    def reader(self, source: Source) -> Any:
        reader = input_reader(self.type, source.connection, source.options, source.registered)
        if isinstance(reader, ReadStream) and reader.keeps_position:
            reader.position = source.position
        return reader

    async def test_every_record_is_read_as_it_was_written(self) -> None:
        async with self.source() as source:
            bodies = [json.dumps(document) for document in DOCUMENTS]
            await source.write(bodies)
            records = await self._read(source, len(bodies))
            assert [json.loads(body) for body in sorted(map(self.body, records))] == [
                json.loads(body) for body in sorted(bodies)
            ]
            assert {record.content_type for record in records} == {"application/json"}
            assert len({record.identity for record in records}) == len(records)

    async def test_a_source_that_cannot_be_read_is_a_transient_fault_without_secrets(self) -> None:
        async with self.source() as source:
            options, registered = source.options, source.registered
        failure = await self._failure(self.unreachable(), options, registered)
        assert failure.retryable
        assert hides_secrets(self.type, self.unreachable(), str(failure))

    async def test_a_source_that_hangs_is_a_transient_fault(self) -> None:
        async with self.source(hangs=True) as source:
            failure = await self._failure(source.connection, source.options, source.registered)
            assert failure.retryable

    async def test_a_source_at_a_forbidden_address_is_not_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with self.source() as source:
            await source.write([b"{}"])
            forbid_every_address(monkeypatch)
            failure = await self._failure(source.connection, source.options, source.registered)
            assert failure.reason == "forbidden"

    async def test_a_connection_test_says_what_was_reached_or_which_field_is_to_blame(self) -> None:
        async with self.source() as source:
            await self.check_what_connection_tests_say(source.connection)

    async def test_it_closes_without_having_been_read(self) -> None:
        async with self.source() as source, opened(self.reader(source)):
            pass


class ReadStreamSuite(_Inputs):
    """For connectors with the capability ``read_stream``."""

    async def test_what_was_not_acknowledged_is_read_again_with_the_same_identity(self) -> None:
        async with self.source() as source:
            await source.write(_numbered(range(20)))
            async with opened(self.reader(source)) as reader, aclosing(reader.stream()) as stream:
                first = await _next(stream)
            records = await self._read(source, 20)
            assert sorted(map(self.body, records)) == sorted(_numbered(range(20)))
            assert {record.identity for record in first.records} <= {record.identity for record in records}

    async def test_what_was_acknowledged_is_not_read_again(self) -> None:
        async with self.source() as source:
            await source.write(_numbered(range(20)))
            await self._read(source, 20, acknowledge=True)
            await source.write(_numbered(range(20, 23)))
            records = await self._read(source, 3)
            assert sorted(map(self.body, records)) == sorted(_numbered(range(20, 23)))

    async def test_the_lag_is_what_waits(self) -> None:
        async with self.source() as source:
            await source.write(_numbered(range(20)))
            async with opened(self.reader(source)) as reader, aclosing(reader.stream()) as stream:
                read = 0
                while read < 20:
                    batch = await _next(stream)
                    read += len(batch.records)
                    assert await self._lag(reader) == (20 - read if self.knows_lag else None)
                    await reader.acknowledge(batch.breakpoint)

    async def test_a_reader_that_is_killed_loses_nothing(self) -> None:
        async with self.source() as source:
            await source.write(_numbered(range(20)))
            await _killed_after_a_batch(self.type, source)
            records = await self._read(source, 20)
            assert set(map(self.body, records)) == set(_numbered(range(20)))

    async def test_a_reader_that_waits_ends_at_once_when_it_is_cancelled(self) -> None:
        async with self.source() as source:

            async def wait_for_records() -> None:
                async with opened(self.reader(source)) as reader:
                    async for _ in reader.stream():
                        started.set()

            started = asyncio.Event()
            await source.write([b"{}"])
            waiting = asyncio.create_task(wait_for_records())
            async with asyncio.timeout(LIMIT_SECONDS):
                await started.wait()
                waiting.cancel()
                await asyncio.wait([waiting])
            assert waiting.cancelled()

    async def _lag(self, reader: ReadStream[Any, Any]) -> int | None:
        """Of a connector that knows it, once the source has told it."""

        async def is_told() -> bool:
            return await reader.lag() is not None

        if self.knows_lag:
            await wait_until_async(is_told)
        return await reader.lag()

    async def _read(self, source: Source, count: int, *, acknowledge: bool = False) -> list[InputRecord]:
        async with opened(self.reader(source)) as reader, aclosing(reader.stream()) as stream:
            records: dict[str, InputRecord] = {}
            while len(records) < count:
                batch = await _next(stream)
                records |= {record.identity: record for record in batch.records}
                if acknowledge:
                    source.position = json.loads(json.dumps(batch.breakpoint))
                    await reader.acknowledge(source.position)
            return list(records.values())

    async def _failure(
        self, connection: dict[str, Any], options: dict[str, Any], registered: dict[str, Any] | None = None
    ) -> DeliveryError:
        async with asyncio.timeout(LIMIT_SECONDS):
            with pytest.raises(DeliveryError) as failed:
                await _first(input_reader(self.type, connection, options, registered))
        return failed.value


class PrefetchSuite(ReadStreamSuite):
    """For those whose option ``prefetch`` bounds what is received and not yet acknowledged."""

    async def test_no_more_is_received_than_was_asked_for(self) -> None:
        async with self.source() as source:
            source.options |= {"prefetch": 3}
            await source.write([b"%d" % number for number in range(10)])
            async with opened(self.reader(source)) as reader, aclosing(reader.stream()) as stream:
                read: list[bytes] = []
                while len(read) < 10:
                    batch = await anext(stream)
                    assert len(batch.records) <= 3
                    read += [record.body for record in batch.records]
                    await reader.acknowledge(batch.breakpoint)
            assert read == [b"%d" % number for number in range(10)]


class ReadBatchSuite(_Inputs):
    """For connectors with the capability ``read_batch``. What is read again after its end must be what is new."""

    async def test_only_what_is_new_is_read_again(self) -> None:
        async with self.source() as source:
            await source.write(_numbered(range(20)))
            breakpoint = (await self._batches(source))[-1].breakpoint
            await source.write(_numbered(range(20, 23)))
            batches = await self._batches(source, breakpoint)
            assert sorted(self._bodies(batches)) == sorted(_numbered(range(20, 23)))
            assert self._bodies(await self._batches(source, batches[-1].breakpoint)) == []

    async def test_reading_goes_on_after_each_batch_with_the_same_identities(self) -> None:
        async with self.source() as source:
            await source.write(_numbered(range(20)))
            whole = await self._batches(source)
            assert sorted(self._bodies(whole)) == sorted(_numbered(range(20)))
            assert len([batch for batch in whole if batch.records]) > 1, "the source has to make several batches"
            identities = _identities(whole)
            assert len(set(identities)) == 20
            for number, batch in enumerate(whole):
                rest = _identities(await self._batches(source, batch.breakpoint))
                assert set(_identities(whole[number + 1 :])) <= set(rest) <= set(identities)

    async def test_a_reader_that_is_killed_loses_nothing(self) -> None:
        async with self.source() as source:
            await source.write(_numbered(range(20)))
            first = await _killed_after_a_batch(self.type, source)
            rest = await self._batches(source, first.breakpoint)
            assert set(self._bodies([first, *rest])) == set(_numbered(range(20)))
            assert len(self._bodies(rest)) < 20, "it began anew"

    async def _batches(self, source: Source, breakpoint: Any = None) -> list[Batch]:
        """What one reading returns."""
        async with asyncio.timeout(60), opened(self.reader(source)) as reader:
            kept = json.loads(json.dumps(breakpoint))
            return [batch async for batch in reader.read(kept)]

    def _bodies(self, batches: Sequence[Batch]) -> list[bytes]:
        return [self.body(record) for batch in batches for record in batch.records]

    async def _read(self, source: Source, count: int) -> list[InputRecord]:
        return [record for batch in await self._batches(source) for record in batch.records]

    async def _failure(
        self, connection: dict[str, Any], options: dict[str, Any], registered: dict[str, Any] | None = None
    ) -> DeliveryError:
        async with asyncio.timeout(LIMIT_SECONDS):
            with pytest.raises(DeliveryError) as failed:
                await self._batches(_Nowhere(connection, options, registered))
        return failed.value


class _Nowhere(Source):
    async def write(self, bodies: Sequence[bytes]) -> None:
        raise NotImplementedError


async def _killed_after_a_batch(connector_type: str, source: Source) -> Batch:
    """The first batch that a reader returned before it was killed."""
    setting = json.dumps(
        {
            "type": connector_type,
            "connection": source.connection,
            "options": source.options,
            "registered": source.registered,
        }
    )
    killed = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.integration.connectors.reader_process",
        setting,
        stdout=asyncio.subprocess.PIPE,
        limit=16 * 1024 * 1024,
    )
    assert killed.stdout is not None
    async with asyncio.timeout(60):
        line = await killed.stdout.readline()
    killed.send_signal(signal.SIGKILL)
    await killed.wait()
    first = json.loads(line)
    return Batch([InputRecord(body.encode()) for body in first["bodies"]], first["breakpoint"])


def _identities(batches: Sequence[Batch]) -> list[str]:
    return [record.identity for batch in batches for record in batch.records]


async def _first(reader: Any) -> Batch:
    async with opened(reader), aclosing(reader.stream()) as stream:
        return await _next(stream)


def input_reader(
    connector_type: str,
    connection: dict[str, Any],
    options: dict[str, Any],
    registered: dict[str, Any] | None = None,
) -> Any:
    """As a pipeline's input binds it."""
    use = ConnectorInput(connector=uuid.uuid4(), options=options)
    made = {use.place: registered} if registered else {}
    return use.bind(RuntimeConnector(type=connector_type, connection=connection, registered=made))


async def _next(stream: AsyncIterator[Batch]) -> Batch:
    """The next batch that has records."""
    async with asyncio.timeout(60):
        while True:
            batch = await anext(stream)
            if batch.records:
                return batch


def _numbered(numbers: Sequence[int]) -> list[bytes]:
    return [b'{"n": %d}' % number for number in numbers]
