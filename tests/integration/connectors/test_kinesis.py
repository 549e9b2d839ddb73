"""The Kinesis connector, against Kinesis Mock. Sign-in, which it shares with SQS, is tested there."""

import asyncio
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from backend.connectors.kinesis import Kinesis, KinesisConnection, shards
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import CheckFailedError, check_connection
from backend.domain.message import Message, new_message_id, utc_now
from tests import kinesis
from tests.integration.connectors.suites import (
    DeliverBatchSuite,
    DeliverSuite,
    ReadStreamSuite,
    Server,
    Source,
    input_reader,
    message,
    opened,
)


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    running = kinesis.kinesis_server()
    running.start()
    yield
    running.stop()


@asynccontextmanager
async def silent() -> AsyncIterator[dict[str, Any]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield kinesis.connection(endpoint=f"http://127.0.0.1:{listening.getsockname()[1]}")


def make_stream(shards: int = 2) -> str:
    return kinesis.make_stream(f"s-{new_message_id()}", shards)


class Filled(Server):
    async def delivered(self) -> list[bytes]:
        return [record["Data"] for record in kinesis.records_of(self.options["stream"])]


class _Kinesis:
    type = "kinesis"

    def unreachable(self) -> dict[str, Any]:
        return kinesis.connection(endpoint="http://127.0.0.1:1")


class _KinesisOutput(_Kinesis):
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Filled]:
        options = {"stream": make_stream()}
        if not hangs:
            yield Filled(kinesis.connection(), options)
            return
        async with silent() as hanging:
            yield Filled(hanging, options)


def keyed(key: bytes, body: bytes) -> Message:
    return Message(new_message_id(), "p", 1, key, body, "application/json", utc_now(), ())


class TestKinesis(_KinesisOutput, DeliverSuite):
    async def test_the_key_is_the_partition_key(self) -> None:
        async with self.server() as server:
            client = self.client(server.connection, server.options)
            for key in ("São Paulo".encode(), b"k" * 257):
                await client.deliver_one(keyed(key, b"\xff"))
            await client.close()
            keys = {record["PartitionKey"] for record in kinesis.records_of(server.options["stream"])}
            assert "São Paulo" in keys
            assert {len(key) for key in keys} == {9, 64}

    async def test_a_missing_stream_is_named(self) -> None:
        client = self.client(kinesis.connection(), {"stream": "absent"})
        with pytest.raises(DeliveryError, match="Check the name of the stream") as failed:
            await client.deliver_one(message())
        await client.close()
        assert (failed.value.option, failed.value.retryable) == ("stream", True)

    async def test_the_connection_test_names_the_field_at_fault(self) -> None:
        assert await check(kinesis.connection()) == "Connected; the access key may list streams."
        with pytest.raises(CheckFailedError) as failed:
            await check(kinesis.connection(endpoint="http://unknown.invalid"))
        assert failed.value.field == "endpoint"


async def check(fields: dict[str, Any]) -> str:
    return await check_connection(Kinesis, KinesisConnection.model_validate(fields))


class TestKinesisBatches(_KinesisOutput, DeliverBatchSuite):
    async def test_many_and_large_messages_are_several_requests(self) -> None:
        async with self.server() as server:
            client = self.client(server.connection, server.options, batch={"messages": 500}, queue=1000)
            bodies = [b"%d" % number for number in range(494)] + [b"%d" % n + b"x" * 900_000 for n in range(6)]
            results = await client.deliver_batch([message(body) for body in bodies])
            await client.close()
            assert not [result for result in results if isinstance(result, DeliveryError)]
            assert sorted(await server.delivered()) == sorted(bodies)


class Written(Source):
    async def write(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self.put(new_message_id(), body)

    def put(self, key: str, body: bytes) -> None:
        kinesis.client().put_record(StreamName=self.options["stream"], Data=body, PartitionKey=key)


class TestKinesisInput(_Kinesis, ReadStreamSuite):
    @asynccontextmanager
    async def source(self, *, hangs: bool = False) -> AsyncIterator[Written]:
        options = {"stream": make_stream()}
        if not hangs:
            yield Written(kinesis.connection(), options)
            return
        async with silent() as hanging:
            yield Written(hanging, options)

    async def test_the_order_of_a_key_holds_while_shards_are_split_and_merged(self) -> None:
        async with self.source() as source:
            stream, client = source.options["stream"], kinesis.client()

            def put(numbers: Sequence[int]) -> None:
                for number in numbers:
                    for key in "abcdefgh":
                        source.put(key, b"%d" % number)

            put(range(3))
            [first, _] = (shard["ShardId"] for shard in client.list_shards(StreamName=stream)["Shards"])
            client.split_shard(StreamName=stream, ShardToSplit=first, NewStartingHashKey=str(2**126))
            kinesis.wait_until_active(stream)
            put(range(3, 6))
            before = await self._read(source, 24, acknowledge=True)
            open_shards = [
                shard
                for shard in client.list_shards(StreamName=stream)["Shards"]
                if "EndingSequenceNumber" not in shard["SequenceNumberRange"]
            ]
            left, right = sorted(open_shards, key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"]))[:2]
            names = {"ShardToMerge": left["ShardId"], "AdjacentShardToMerge": right["ShardId"]}
            client.merge_shards(StreamName=stream, **names)
            kinesis.wait_until_active(stream)
            put(range(6, 9))
            records = before + await self._read(source, 72 - len(before))
            read: dict[bytes | None, list[int]] = defaultdict(list)
            for record in records:
                read[record.key].append(int(record.body))
            assert read == {key.encode(): list(range(9)) for key in "abcdefgh"}

    async def test_reading_that_begins_with_the_latest_keeps_its_place(self) -> None:
        async with self.source() as source:
            source.options["begin"] = "latest"
            await source.write([b"1"])
            await asyncio.sleep(2)  # the emulator's clock is read in whole seconds
            async with opened(self.reader(source)) as reader, aclosing(reader.stream()) as stream:
                source.position = (await anext(stream)).breakpoint
            await source.write([b"2"])
            [record] = await self._read(source, 1)
            assert record.body == b"2"

    async def test_another_stream_of_the_same_name_is_read_from_its_beginning(self) -> None:
        async with self.source() as source:
            await source.write([b"1"])
            await self._read(source, 1, acknowledge=True)
            client, name = kinesis.client(), source.options["stream"]
            client.delete_stream(StreamName=name)
            client.get_waiter("stream_not_exists").wait(StreamName=name, WaiterConfig={"Delay": 1})
            kinesis.make_stream(name, 2)
            await source.write([b"2"])
            [record] = await self._read(source, 1)
            assert record.body == b"2"

    async def test_an_iterator_that_has_expired_is_replaced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with self.source() as source:
            await source.write([b"1"])
            async with opened(self.reader(source)) as reader:
                shard = shards._Shard(reader._stream, "shardId-000000000000", "", 0)
                refusal = DeliveryError("kinesis_expirediteratorexception", "", retryable=False)

                async def refuse(*_: Any, **__: Any) -> Any:
                    raise refusal

                await shard.read()
                with monkeypatch.context() as patch:
                    patch.setattr(reader._stream, "ask", refuse)
                    assert await shard.read() == []
                await shard.read()
                assert not shard.has_ended

    async def test_a_missing_stream_is_named(self) -> None:
        reader = input_reader(self.type, kinesis.connection(), {"stream": "absent"})
        with pytest.raises(DeliveryError, match="Check the name of the stream"):
            async with opened(reader):
                pass
