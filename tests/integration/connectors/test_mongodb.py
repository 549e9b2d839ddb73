"""The MongoDB connector, against FerretDB. It has users (SCRAM) and TLS, but no decimals, roles and change streams."""

import asyncio
import json as text_json
import socket
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import Any

import pytest
from bson import Binary, ObjectId
from pymongo.collection import Collection

from backend.connectors.mongodb import client, read
from backend.connectors.mongodb.connection import MongodbConnection
from backend.domain import json
from backend.domain.capabilities import Batch, DeliveryError, InputRecord, Receipt
from backend.domain.connector import CheckFailedError, check_connection, connectors
from backend.domain.message import new_message_id
from backend.network.outbound import OutboundPolicy
from tests import infra
from tests.integration.connectors.suites import (
    DOCUMENTS,
    DeliverBatchSuite,
    DeliverSuite,
    ReadBatchSuite,
    Server,
    Source,
    message,
)
from tests.mongodb import AUTHORITY, CONNECTION, HOST, PASSWORD, PORT, TLS_PORT, direct, mongodb_server


@pytest.fixture(scope="module", autouse=True)
def mongodb() -> Iterator[infra.Server]:
    server = mongodb_server()
    server.start()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no server, tests need not wait for one as long as users do."""
    monkeypatch.setattr(client, "_FIND_SECONDS", 1.5)


def new_options(**fields: Any) -> dict[str, Any]:
    return {"database": "shop", "collection": f"c-{new_message_id()}", **fields}


def collection(options: dict[str, Any]) -> Collection[dict[str, Any]]:
    return direct()[options["database"]][options["collection"]]


@asynccontextmanager
async def silent() -> AsyncIterator[dict[str, Any]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield {**CONNECTION, "servers": f"127.0.0.1:{server.getsockname()[1]}"}


class _Mongodb:
    type = "mongodb"

    def unreachable(self) -> dict[str, Any]:
        return {**CONNECTION, "servers": "127.0.0.1:1"}


class _Written(Server):
    async def delivered(self) -> list[bytes]:
        documents = await asyncio.to_thread(lambda: list(collection(self.options).find({}, {"_id": 0})))
        return [text_json.dumps(document, ensure_ascii=False).encode() for document in documents]


@asynccontextmanager
async def written(hangs: bool) -> AsyncIterator[Server]:
    options = new_options(write="insert")
    if hangs:
        async with silent() as connection:
            yield _Written(connection, options)
    else:
        yield _Written(CONNECTION, options)


class TestMongodb(_Mongodb, DeliverSuite):
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Server]:
        async with written(hangs) as server:
            yield server


class TestMongodbBatches(_Mongodb, DeliverBatchSuite):
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Server]:
        async with written(hangs) as server:
            yield server

    async def deliver(self, options: dict[str, Any], *documents: Any) -> list[str]:
        """For each document "" when it was written, or else the reason of its error."""
        outcomes = await self.outcomes(options, [message(json.dumps(document)) for document in documents])
        return [outcome.reason if isinstance(outcome, DeliveryError) else "" for outcome in outcomes]

    async def outcomes(self, options: dict[str, Any], messages: Sequence[Any]) -> Sequence[Receipt | DeliveryError]:
        output = self.client(CONNECTION, options)
        try:
            return await output.deliver_batch(messages)
        finally:
            await output.close()

    async def test_every_kind_of_value_is_kept(self) -> None:
        options = new_options(write="insert")
        # FerretDB has neither decimals nor lists in lists.
        documents = [document for document in DOCUMENTS if not {"large", "order"} & document.keys()]
        documents += [{"order": {"lines": [{"sku": "a", "price": 0.1}, {"tags": ["x", {"y": []}]}]}}]
        documents += [{"big": 2**63 - 1, "least": -(2**63), "double": 0.1, "quotes": 'it\'s "quoted", a,b\nc'}]
        assert set(await self.deliver(options, *documents)) == {""}
        stored = list(collection(options).find({}, {"_id": 0}))
        assert sorted(stored, key=str) == sorted(documents, key=str)

    async def test_fields_are_stored_as_the_types_they_are_told(self) -> None:
        types = {"at": "date", "order.customer": "object_id"}
        options = new_options(write="insert", types=types)
        customer = ObjectId()
        good = {"_id": 1, "at": "2026-10-25T02:30:00.123+02:00", "order": {"customer": str(customer)}}
        bad = [{"_id": 2, "at": "soon"}, {"_id": 3, "order": {"customer": "x"}}, {"_id": 4, "at": 5}]
        assert await self.deliver(options, good, *bad, {"_id": 5, "at": None}) == ["", *["mongodb_document"] * 3, ""]
        stored = list(collection(options).find().sort("_id"))
        moment = datetime(2026, 10, 25, 0, 30, 0, 123_000, tzinfo=UTC)
        assert stored == [{"_id": 1, "at": moment, "order": {"customer": customer}}, {"_id": 5, "at": None}]

    async def test_extended_json_has_every_type(self) -> None:
        options = new_options(write="replace", format="extended")
        number = ObjectId()
        document = {
            "_id": {"$oid": str(number)},
            "at": {"$date": "2026-01-31T12:00:00Z"},
            "long": {"$numberLong": "5"},
            "bytes": {"$binary": {"base64": "AAE=", "subType": "00"}},
        }
        assert await self.deliver(options, document, {"_id": {"$oid": "x"}}, {"$date": "2026-01-31T12:00:00Z"}) == [
            "",
            "mongodb_document",
            "mongodb_document",
        ]
        moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
        assert list(collection(options).find()) == [{"_id": number, "at": moment, "long": 5, "bytes": b"\0\1"}]

    async def test_a_repeated_message_does_no_harm(self) -> None:
        inserted = new_options(write="insert")
        messages = [message(b'{"n": 1}'), message(b'{"n": 2, "_id": "own", "at": 0.5}')]
        for _ in range(2):
            assert all(isinstance(outcome, Receipt) for outcome in await self.outcomes(inserted, messages))
        stored = list(collection(inserted).find().sort("n"))
        assert stored == [{"_id": messages[0].id, "n": 1}, {"_id": "own", "n": 2, "at": 0.5}]
        for write in ("replace", "update", "delete"):
            options = new_options(write=write)
            for _ in range(2):
                assert await self.deliver(options, {"_id": 1, "a": 1}) == [""]
            assert collection(options).count_documents({}) == (write != "delete")

    async def test_documents_are_replaced_changed_and_deleted_by_their_key(self) -> None:
        fields: dict[str, Any] = {"key": ["order.id", "region"], "delete_when": "gone"}
        for write, kept in (("replace", {}), ("update", {"old": True})):
            options = new_options(write=write, **fields)
            stored = collection(options)
            stored.insert_many([{"order": {"id": n}, "region": "br", "old": True} for n in range(3)])
            documents = [
                {"order": {"id": 0}, "region": "br", "new": 1},
                {"order": {"id": 0}, "region": "de", "new": 2},
                {"order": {"id": 1}, "region": "br", "gone": True},
                {"order": {"id": 9}, "region": "br", "gone": True},
            ]
            assert set(await self.deliver(options, *documents)) == {""}
            assert sorted(stored.find({}, {"_id": 0}), key=str) == sorted(
                [
                    {"order": {"id": 0}, "region": "br", "new": 1, **kept},
                    {"order": {"id": 0}, "region": "de", "new": 2},
                    {"order": {"id": 2}, "region": "br", "old": True},
                ],
                key=str,
            )

    @pytest.mark.parametrize("ordered", [False, True])
    async def test_only_the_document_at_fault_fails(self, ordered: bool) -> None:
        options = new_options(write="insert", ordered=ordered)
        collection(options).insert_one({"_id": 2, "other": True})
        documents = [{"_id": 1}, {"_id": 2}, {"_id": 3}, {"_id": 4, "$a": 1}, {"_id": 2, "x": 1}, {"_id": 5}]
        reasons = await self.deliver(options, *documents)
        assert reasons == ["", "mongodb_11000", "", "mongodb_2", "mongodb_11000", ""]
        assert [document["_id"] for document in collection(options).find().sort("_id")] == [1, 2, 3, 5]
        outcomes = await self.outcomes(options, [message(b'{"_id": 2}'), message(b"[1]"), message(b"{")])
        assert all(isinstance(one, DeliveryError) and one.about_message and not one.retryable for one in outcomes)

    async def test_a_unique_index_is_kept(self) -> None:
        options = new_options(write="insert")
        collection(options).create_index("email", unique=True)
        assert await self.deliver(options, {"email": "a"}) == [""]
        assert await self.deliver(options, {"email": "a"}, {"email": "b"}) == ["mongodb_11000", ""]

    @pytest.mark.parametrize("key", [{"$ne": None}, {}, [1], None])
    async def test_a_key_is_a_value_and_no_condition(self, key: Any) -> None:
        options = new_options(write="delete")
        collection(options).insert_one({"_id": 1})
        assert await self.deliver(options, {"_id": key}, {}, {"_id": {"$oid": "0" * 24}}) == ["mongodb_document"] * 3
        assert collection(options).count_documents({}) == 1

    async def test_a_connection_that_is_lost_is_replaced(self, mongodb: infra.Server) -> None:
        options = new_options(write="insert")
        output = self.client(CONNECTION, options, timeout_seconds=20)
        await output.deliver_one(message())
        await asyncio.to_thread(mongodb.stop)
        try:
            with pytest.raises(DeliveryError) as failed:
                await output.deliver_one(message())
            assert failed.value.retryable
            assert failed.value.reason == "connection"
        finally:
            await asyncio.to_thread(mongodb.start)
        async with asyncio.timeout(60):
            while True:
                with suppress(DeliveryError):
                    await output.deliver_one(message())
                    break
        await output.close()


class TestMongodbConnection:
    async def fault(self, **changes: Any) -> tuple[str | None, str]:
        connection = MongodbConnection.model_validate({**CONNECTION, **changes})
        with pytest.raises(CheckFailedError) as failed:
            await check_connection(connectors.get("mongodb"), connection)
        assert PASSWORD not in str(failed.value)
        return failed.value.field, str(failed.value)

    async def reached(self, **changes: Any) -> str:
        connection = MongodbConnection.model_validate({**CONNECTION, **changes})
        return await check_connection(connectors.get("mongodb"), connection)

    async def test_what_was_reached_is_told(self) -> None:
        for mechanism in ("SCRAM", "SCRAM-SHA-256", "SCRAM-SHA-1"):
            reached = await self.reached(mechanism=mechanism)
            assert reached.endswith("replica set rs0 as headrace.")
        # One of the servers is enough.
        assert "rs0" in await self.reached(servers=f"no-such-host.invalid,{HOST}:{PORT}", replica_set="rs0")

    @pytest.mark.parametrize(
        ("changes", "field", "named"),
        [
            ({"password": "wrong-password"}, "password", "rejects the login"),
            ({"username": "nobody"}, "password", "rejects the login"),
            ({"login_database": "other"}, "password", "rejects the login"),
            ({"servers": "no-such-host.invalid"}, "servers", "No host of no-such-host.invalid is known"),
            ({"servers": "127.0.0.1:1"}, "servers", "No connection to a server of 127.0.0.1:1"),
            ({"replica_set": "other"}, "servers", "replica set"),
            ({"servers": f"127.0.0.1:{TLS_PORT}", "tls": {"type": "tls"}}, "tls", "certificate verify failed"),
        ],
    )
    async def test_what_is_wrong_is_explained_at_its_field(
        self, changes: dict[str, Any], field: str, named: str
    ) -> None:
        at, explained = await self.fault(**changes)
        assert (at, named in explained) == (field, True), explained

    async def test_tls_with_a_private_authority_and_a_client_certificate(self) -> None:
        certificate, key = (file.read_text() for file in AUTHORITY.issue("client", "key-password"))
        tls = {
            "type": "tls",
            "ca": AUTHORITY.certificate.read_text(),
            "certificate": certificate,
            "key": key,
            "key_password": "key-password",
        }
        server = {"servers": f"127.0.0.1:{TLS_PORT}", "direct": True}
        assert "as headrace" in await self.reached(**server, tls=tls)
        assert (await self.fault(**server, tls={"type": "tls"}))[0] == "tls"
        assert (await self.fault(**server))[0] == "servers"
        assert (await self.fault(servers=f"localhost:{TLS_PORT}", direct=True, tls=tls))[0] == "tls"
        without = {"type": "tls", "ca": tls["ca"]}
        assert (await self.fault(**server, tls=without))[0] in ("tls", "servers")

    async def test_a_member_of_the_replica_set_at_a_forbidden_address_is_not_connected_to(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        connected: list[Any] = []

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connected.append(None)
            other_reader, other_writer = await asyncio.open_connection(HOST, PORT)
            await asyncio.gather(_copied(reader, other_writer), _copied(other_reader, writer))

        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        monkeypatch.setattr(client, "outbound_policy", lambda: _ONLY_THE_RELAY)
        servers = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert "rs0" in await self.reached(servers=servers, direct=True)
        field, explained = await self.fault(servers=servers)
        assert (field, f"{HOST} is not an address of the public internet" in explained) == ("servers", True)
        assert connected
        server.close()

    @pytest.mark.parametrize(
        ("fields", "named"),
        [
            ({"servers": "mongodb://a"}, "String should match"),
            ({"servers": "a:1,/tmp/x.sock"}, "String should match"),
            ({"servers": "x.sock"}, "not a host"),
            ({"servers": "a:70000"}, "not a port"),
            ({"servers": "u:p@a"}, "String should match"),
            ({"password": None}, "user name and a password"),
            ({"servers": "a,b", "direct": True}, "Only one server"),
        ],
    )
    def test_what_is_no_connection_is_refused(self, fields: dict[str, Any], named: str) -> None:
        with pytest.raises(ValueError, match=named):
            MongodbConnection.model_validate({**CONNECTION, **fields})

    def test_every_server_is_checked_when_it_is_saved(self) -> None:
        connection = MongodbConnection(servers="a.example.com,[::1]:27018,10.0.0.1:1")
        assert connection.hosts() == {"servers": ["a.example.com", "::1", "10.0.0.1"]}
        assert connection.addresses() == [("a.example.com", 27017), ("::1", 27018), ("10.0.0.1", 1)]


_ONLY_THE_RELAY = OutboundPolicy([ip_network("127.0.0.1/32")])


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()
    writer.close()


class _Filled(Source):
    """Documents that hold what was written as text: a server without decimals cannot hold every number."""

    async def write(self, bodies: Sequence[bytes]) -> None:
        documents = [{"document": body.decode()} for body in bodies]
        await asyncio.to_thread(collection(self.options).insert_many, documents)


class TestMongodbInput(_Mongodb, ReadBatchSuite):
    @asynccontextmanager
    async def source(self, *, hangs: bool = False) -> AsyncIterator[Source]:
        options = new_options(mode={"type": "incremental", "delay_seconds": 0}, most_documents=7)
        if hangs:
            async with silent() as connection:
                yield _Filled(connection, options)
        else:
            yield _Filled(CONNECTION, options)

    def body(self, record: InputRecord) -> bytes:
        return str(json.loads(record.body)["document"]).encode()

    async def read(self, options: dict[str, Any], breakpoint: Any = None) -> list[Batch]:
        return await self._batches(_Filled(CONNECTION, options), breakpoint)

    def documents(self, batches: Sequence[Batch]) -> list[Any]:
        return [json.loads(record.body) for batch in batches for record in batch.records]

    async def test_documents_become_json(self) -> None:
        number, moment = ObjectId(), datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC)
        options = new_options(mode={"type": "whole"})
        stored = {
            "_id": number,
            "at": moment,
            "n": [2**62, 0.1, None, True],
            "b": Binary(b"\0\1"),
            "t": "é",
        }
        collection(options).insert_one(stored)
        [record] = [record for batch in await self.read(options) for record in batch.records]
        assert json.loads(record.body) == {
            "_id": str(number),
            "at": "2026-01-31T12:00:00.123Z",
            "n": [2**62, json.loads("0.1"), None, True],
            "b": "AAE=",
            "t": "é",
        }
        assert record.key == str(number).encode()
        [record] = [record for batch in await self.read({**options, "format": "extended"}) for record in batch.records]
        assert json.loads(record.body) == {
            "_id": {"$oid": str(number)},
            "at": {"$date": "2026-01-31T12:00:00.123Z"},
            "n": [2**62, json.loads("0.1"), None, True],
            "b": {"$binary": {"base64": "AAE=", "subType": "00"}},
            "t": "é",
        }

    async def test_all_documents_are_read_once_or_again_whatever_their_ids_are(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        options = new_options(mode={"type": "whole"}, most_documents=1)
        ids = [1, 2.5, 2**40, "a", "b", {"x": 1}, Binary(b"x"), ObjectId(), True, datetime(2026, 1, 1, tzinfo=UTC)]
        collection(options).insert_many([{"_id": identifier, "n": n} for n, identifier in enumerate(ids)])
        first = await self.read(options)
        assert [document["n"] for document in self.documents(first)] == list(range(len(ids)))
        identities = [record.identity for batch in first for record in batch.records]
        assert len(set(identities)) == len(ids)
        assert await self.read(options, first[-1].breakpoint) == []
        for number, batch in enumerate(first[:-1]):
            assert len(self.documents(await self.read(options, batch.breakpoint))) == len(ids) - number - 1
        again = {**options, "mode": {"type": "whole", "repeat_minutes": 10}}
        assert await self.read(again, first[-1].breakpoint) == []
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 601)
        repeated = await self.read(again, first[-1].breakpoint)
        assert self.documents(repeated) == self.documents(first)
        assert not set(identities) & {record.identity for batch in repeated for record in batch.records}

    async def test_changes_are_read_by_the_time_of_the_last_one(self) -> None:
        mode = {"type": "incremental", "field": "meta.updated", "delay_seconds": 3600}
        options = new_options(mode=mode, most_documents=2)
        stored, old = collection(options), datetime.now(UTC) - timedelta(hours=2)
        stored.insert_many([{"_id": n, "meta": {"updated": old}} for n in range(5)])
        stored.insert_many([{"_id": 10}, {"_id": 11, "meta": {"updated": None}}])
        stored.insert_one({"_id": 12, "meta": {"updated": datetime.now(UTC)}})  # still settling
        first = await self.read(options)
        assert [document["_id"] for document in self.documents(first)] == [0, 1, 2, 3, 4]
        rest = await self.read(options, first[0].breakpoint)
        assert [document["_id"] for document in self.documents(rest)] == [2, 3, 4]
        stored.update_one({"_id": 1}, {"$set": {"meta.updated": old + timedelta(minutes=1)}})
        stored.insert_one({"_id": 5, "meta": {"updated": old}})
        second = await self.read(options, first[-1].breakpoint)
        assert [document["_id"] for document in self.documents(second)] == [5, 1]
        assert not {r.identity for b in second for r in b.records} & {r.identity for b in first for r in b.records}
        now = {**options, "mode": {**mode, "delay_seconds": 0}}
        assert [document["_id"] for document in self.documents(await self.read(now, second[-1].breakpoint))] == [12]

    async def test_documents_that_are_new_are_left_to_settle(self) -> None:
        options = new_options(mode={"type": "incremental", "delay_seconds": 3600})
        old = ObjectId.from_datetime(datetime.now(UTC) - timedelta(hours=2))
        collection(options).insert_many([{"_id": old}, {"_id": ObjectId()}])
        assert [document["_id"] for document in self.documents(await self.read(options))] == [str(old)]

    async def test_a_filter_and_fields_choose_what_is_read(self) -> None:
        wanted = ObjectId()
        options = new_options(
            mode={"type": "incremental", "field": "n"},
            filter={"$or": [{"owner": {"$oid": str(wanted)}}, {"tags": "x"}]},
            fields=["a.b"],
        )
        collection(options).insert_many(
            [
                {"_id": 1, "n": 1, "owner": wanted, "a": {"b": 1, "c": 2}},
                {"_id": 2, "n": 2, "owner": ObjectId()},
                {"_id": 3, "n": 3, "tags": ["x", "y"], "d": 1},
            ]
        )
        assert self.documents(await self.read(options)) == [{"_id": 1, "n": 1, "a": {"b": 1}}, {"_id": 3, "n": 3}]

    async def test_batches_are_limited_by_their_size(self) -> None:
        options = new_options(mode={"type": "whole"})
        collection(options).insert_many([{"_id": n, "text": "x" * 600_000} for n in range(15)])
        batches = await self.read(options)
        assert [len(batch.records) for batch in batches] == [10, 3, 2, 0]

    async def test_a_large_collection_is_read_in_several_turns(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(read, "_READ_SECONDS", -1)
        options = new_options(mode={"type": "whole"}, most_documents=2)
        collection(options).insert_many([{"_id": n} for n in range(3)])
        first = await self.read(options)
        second = await self.read(options, first[-1].breakpoint)
        assert [self.documents(turn) for turn in (first, second)] == [[{"_id": 0}, {"_id": 1}], [{"_id": 2}]]

    async def test_a_collection_that_is_missing_has_no_documents(self) -> None:
        assert self.documents(await self.read(new_options(mode={"type": "incremental"}))) == []

    async def test_a_condition_that_mongodb_does_not_know_is_told(self) -> None:
        options = new_options(mode={"type": "whole"}, filter={"n": {"$near_enough": 1}})
        collection(options).insert_one({"n": 1})
        with pytest.raises(DeliveryError, match="near_enough") as failed:
            await self.read(options)
        assert failed.value.reason.startswith("mongodb_")

    def test_a_filter_that_is_no_extended_json_is_refused(self) -> None:
        with pytest.raises(ValueError, match="not Extended JSON"):
            read.MongodbReadOptions.model_validate(new_options(mode={"type": "whole"}, filter={"a": {"$oid": "x"}}))
