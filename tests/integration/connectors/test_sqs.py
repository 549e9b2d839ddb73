"""The SQS connector, against moto, which checks signatures and rights."""

import asyncio
import hashlib
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from msgspec.structs import replace

from backend.connectors.sqs import Sqs, SqsConnection, read
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import CheckFailedError, check_connection
from backend.domain.message import Message, SourceHeader, new_message_id, source_fields, utc_now
from tests import moto
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
from tests.waiting import LIMIT_SECONDS


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    running = moto.moto_server()
    running.start()
    moto.access()
    yield
    running.stop()


def make_queue(*, fifo: bool = False, **attributes: str) -> str:
    """Its name."""
    name = f"q-{new_message_id()}{'.fifo' if fifo else ''}"
    kind = {"FifoQueue": "true"} if fifo else {}
    moto.client("sqs").create_queue(QueueName=name, Attributes=kind | attributes)
    return name


def address_of(name: str) -> str:
    return str(moto.client("sqs").get_queue_url(QueueName=name)["QueueUrl"])


@asynccontextmanager
async def silent() -> AsyncIterator[dict[str, Any]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield moto.connection(endpoint=f"http://127.0.0.1:{listening.getsockname()[1]}")


class FilledQueue(Server):
    async def delivered(self) -> list[bytes]:
        return [one["Body"].encode() for one in self.messages()]

    def messages(self) -> list[dict[str, Any]]:
        """Takes everything out of the queue."""
        sqs, address = moto.client("sqs"), address_of(self.options["queue"])
        taken: list[dict[str, Any]] = []
        while True:
            answer = sqs.receive_message(
                QueueUrl=address, MaxNumberOfMessages=10, AttributeNames=["All"], MessageAttributeNames=["All"]
            )
            if not answer.get("Messages"):
                return taken
            for one in answer["Messages"]:
                taken.append(one)
                sqs.delete_message(QueueUrl=address, ReceiptHandle=one["ReceiptHandle"])


class _Sqs:
    type = "sqs"

    def unreachable(self) -> dict[str, Any]:
        access = {"type": "access_key", "access_key_id": "nobody", "secret_access_key": "planted-secret-of-sqs"}
        return {"region": moto.REGION, "endpoint": "http://127.0.0.1:1", "access": access}


class _SqsOutput(_Sqs):
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[FilledQueue]:
        options = {"queue": make_queue()}
        if not hangs:
            yield FilledQueue(moto.connection(), options)
            return
        async with silent() as hanging:
            yield FilledQueue(hanging, options)


def keyed(key: bytes, number: int) -> Message:
    return Message(new_message_id(), "p", 1, key, b"%d" % number, "text/plain", utc_now(), ())


class TestSqs(_SqsOutput, DeliverSuite):
    takes_the_largest = False  # its limit includes the attributes

    async def test_a_message_has_its_id_and_its_content_type(self) -> None:
        async with self.server() as server:
            client = self.client(server.connection, server.options)
            sent = keyed(b"k", 1)
            await client.deliver_one(sent)
            await client.close()
            [one] = server.messages()
            attributes = {name: value["StringValue"] for name, value in one["MessageAttributes"].items()}
            assert attributes == {"message-id": sent.id, "content-type": "text/plain"}

    @pytest.mark.parametrize("kept", [True, False])
    async def test_a_record_that_was_read_keeps_its_headers(self, kept: bool) -> None:
        headers: list[SourceHeader] = [
            ("tenant", b"a"),
            ("tenant", "São".encode()),
            ("empty", None),
            ("binary", b"\xff"),
            ("Message-Id", b"theirs"),
            ("AWS.x", b"x"),
            ("two words", b"x"),
            *((f"further.{number}", b"x") for number in range(10)),
        ]
        async with self.server() as server:
            client = self.client(server.connection, server.options | {"keep_headers": kept})
            sent = replace(message(), extra=source_fields("orders", headers))
            await client.deliver_one(sent)
            await client.close()
            [one] = server.messages()
            attributes = {
                name: value.get("BinaryValue", value.get("StringValue"))
                for name, value in one["MessageAttributes"].items()
            }
            own = {"message-id": sent.id, "content-type": "application/json"}
            theirs = {"tenant": "São", "binary": b"\xff"} | {f"further.{number}": "x" for number in range(6)}
            assert attributes == own | (theirs if kept else {})

    async def test_a_fifo_queue_keeps_the_order_of_each_key_and_drops_repeats(self) -> None:
        server = FilledQueue(moto.connection(), {"queue": make_queue(fifo=True)})
        client = self.client(server.connection, server.options)
        unfit = "São Paulo".encode()
        for number in range(6):
            sent = keyed(b"a" if number % 2 else unfit, number)
            await client.deliver_one(sent)
            await client.deliver_one(sent)
        await client.close()
        groups = defaultdict(list)
        for one in server.messages():
            groups[one["Attributes"]["MessageGroupId"]].append(one["Body"])
        assert groups == {"a": ["1", "3", "5"], hashlib.sha256(unfit).hexdigest(): ["0", "2", "4"]}

    @pytest.mark.parametrize("body", [b"\xff", b"", b"x" * 1024 * 1024])
    async def test_what_sqs_cannot_hold_is_the_messages_fault(self, body: bytes) -> None:
        async with self.server() as server:
            client = self.client(server.connection, server.options)
            with pytest.raises(DeliveryError) as failed:
                await client.deliver_one(message(body))
            await client.close()
            assert failed.value.about_message
            assert not failed.value.retryable

    async def test_a_missing_queue_is_named_and_found_once_it_is_there(self) -> None:
        name = f"q-{new_message_id()}"
        client = self.client(moto.connection(), {"queue": name})
        with pytest.raises(DeliveryError, match=f"no queue {name}") as failed:
            await client.deliver_one(message())
        assert (failed.value.option, failed.value.retryable) == ("queue", True)
        moto.client("sqs").create_queue(QueueName=name)
        await client.deliver_one(message())
        await client.close()

    async def test_the_connection_test_names_the_field_at_fault(self) -> None:
        assert await check(moto.connection()) == "Connected; the access key may list queues."
        for field, wrong in {
            "access": moto.connection(access=moto.access() | {"secret_access_key": "wrong-secret"}),
            "endpoint": moto.connection(endpoint="http://unknown.invalid"),
        }.items():
            with pytest.raises(CheckFailedError) as failed:
                await check(wrong)
            assert failed.value.field == field, str(failed.value)
            assert "wrong-secret" not in str(failed.value)

    async def test_a_login_that_may_not_list_queues_is_a_login(self) -> None:
        async def deny(_: web.Request) -> web.Response:
            error = {"__type": "com.amazon.coral.service#AccessDeniedException", "message": "Not authorized."}
            return web.json_response(error, status=400, content_type="application/x-amz-json-1.0")

        application = web.Application()
        application.router.add_post("/", deny)
        async with TestServer(application, host="127.0.0.1") as server:
            shown = await check(moto.connection(endpoint=str(server.make_url("/"))))
        assert shown == "Connected; the access key may not list queues, which is not needed."

    async def test_an_unknown_access_key_is_named(self) -> None:
        async with self.server() as server:
            wrong = moto.connection(access=moto.access() | {"access_key_id": "AKIANOBODY"})
            client = self.client(wrong, server.options)
            with pytest.raises(DeliveryError, match="SQS does not permit this") as failed:
                await client.deliver_one(message())
            await client.close()
            assert failed.value.retryable


async def check(fields: dict[str, Any]) -> str:
    return await check_connection(Sqs, SqsConnection.model_validate(fields))


class TestSqsBatches(_SqsOutput, DeliverBatchSuite):
    takes_the_largest = False

    async def test_large_and_unfit_messages_leave_their_neighbours_alone(self) -> None:
        async with self.server() as server:
            client = self.client(server.connection, server.options, batch={"messages": 100})
            bodies = [b"%d" % number for number in range(23)]
            bodies[3], bodies[7], bodies[11] = b"\xff", b"a" * 600_000, b"b" * 600_000
            results = await client.deliver_batch([message(body) for body in bodies])
            await client.close()
            failed = [number for number, result in enumerate(results) if isinstance(result, DeliveryError)]
            assert failed == [3]
            assert sorted(await server.delivered()) == sorted(bodies[:3] + bodies[4:])


class Written(Source):
    async def write(self, bodies: Sequence[bytes]) -> None:
        sqs, address = moto.client("sqs"), address_of(self.options["queue"])
        for body in bodies:
            sqs.send_message(QueueUrl=address, MessageBody=body.decode())


class TestSqsInput(_Sqs, ReadStreamSuite):
    knows_lag = True

    @asynccontextmanager
    async def source(self, *, hangs: bool = False) -> AsyncIterator[Written]:
        options = {"queue": make_queue()}
        if not hangs:
            yield Written(moto.connection(), options)
            return
        async with silent() as hanging:
            yield Written(hanging, options)

    async def test_the_messages_of_a_group_are_read_in_order(self) -> None:
        source = Written(moto.connection(), {"queue": make_queue(fifo=True)})
        sqs, address = moto.client("sqs"), address_of(source.options["queue"])
        for number in range(60):
            content_type = {"StringValue": "text/plain", "DataType": "String"}
            sqs.send_message(
                QueueUrl=address,
                MessageBody=str(number),
                MessageGroupId=f"g{number % 3}",
                MessageDeduplicationId=str(number),
                MessageAttributes={"content-type": content_type},
            )
        records = await self._read(source, 60, acknowledge=True)
        numbers: dict[bytes | None, list[int]] = defaultdict(list)
        for record in records:
            numbers[record.key].append(int(record.body))
        assert numbers == {b"g%d" % group: list(range(group, 60, 3)) for group in range(3)}
        assert {record.content_type for record in records} == {"text/plain"}

    async def test_attributes_travel_with_the_message(self) -> None:
        source = Written(moto.connection(), {"queue": make_queue(fifo=True)})
        moto.client("sqs").send_message(
            QueueUrl=address_of(source.options["queue"]),
            MessageBody="1",
            MessageGroupId="g",
            MessageDeduplicationId="d",
            MessageAttributes={
                "tenant": {"DataType": "String", "StringValue": "São"},
                "number": {"DataType": "Number", "StringValue": "7"},
                "binary": {"DataType": "Binary", "BinaryValue": b"\xff"},
            },
        )
        [record] = await self._read(source, 1)
        headers = dict(record.headers)
        sent = headers.pop("sent-timestamp")
        assert sent is not None
        assert sent.isdigit()
        assert headers == {
            "message-group-id": b"g",
            "message-deduplication-id": b"d",
            "tenant": "São".encode(),
            "number": b"7",
            "binary": b"\xff",
        }
        assert record.source == source.options["queue"]

    async def test_messages_are_held_for_as_long_as_they_are_not_deleted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(read, "_HIDDEN_SECONDS", 10)
        monkeypatch.setattr(read, "_EXTEND_SECONDS", 0.5)
        async with self.source() as source:
            await source.write([b"1", b"2"])
            async with opened(self.reader(source)) as reader, aclosing(reader.stream()) as stream:
                batch = await anext(stream)
                await asyncio.sleep(12)
                assert await reader.lag() == 2 - len(batch.records)

    async def test_a_missing_queue_is_named(self) -> None:
        reader = input_reader(self.type, moto.connection(), {"queue": "absent"})
        with pytest.raises(DeliveryError, match="no queue absent"):
            async with opened(reader):
                pass

    async def test_a_queue_that_is_deleted_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(read, "_WAIT_SECONDS", 1)
        async with self.source() as source, opened(self.reader(source)) as reader:
            moto.client("sqs").delete_queue(QueueUrl=address_of(source.options["queue"]))
            with pytest.raises(DeliveryError, match="no queue"):
                async with asyncio.timeout(LIMIT_SECONDS):
                    await anext(reader.stream())
