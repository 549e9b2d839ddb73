"""The connector for Elasticsearch and OpenSearch, against OpenSearch with users and TLS."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError

from backend.connectors.elasticsearch.connection import ElasticsearchConnection
from backend.connectors.elasticsearch.write import ElasticsearchOutputOptions
from backend.domain import json
from backend.domain.capabilities import BatchRefusedError, DeliveryError, Receipt
from backend.domain.connector import CheckFailedError, check_connection, connectors
from backend.domain.message import Message, new_message_id
from tests import infra, opensearch
from tests.certificates import Authority
from tests.integration.connectors.suites import DOCUMENTS, DeliverBatchSuite, DeliverSuite, Server, message
from tests.receiver import receiver

CONNECTION: dict[str, Any] = {
    "url": opensearch.URL,
    "authentication": {"type": "basic", "username": opensearch.USER, "password": opensearch.PASSWORD},
    "ca": opensearch.AUTHORITY.certificate.read_text(),
}


def _with_login(**fields: str) -> dict[str, Any]:
    return {**CONNECTION, "authentication": {**CONNECTION["authentication"], **fields}}


READER = _with_login(username=opensearch.READER)
STRANGER = _with_login(username=opensearch.STRANGER)
_NOT_PERMITTED = ("elasticsearch_security_exception", True)


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[infra.Server]:
    running = opensearch.opensearch_server()
    running.start()
    yield running
    running.stop()


def new_options(**fields: Any) -> dict[str, Any]:
    return {"index": f"orders-{new_message_id()}", **fields}


class _Index(Server):
    async def delivered(self) -> list[bytes]:
        if opensearch.api("HEAD", self.options["index"]).status_code == 404:
            return []
        return await asyncio.to_thread(opensearch.sources, self.options["index"])


@asynccontextmanager
async def index(hangs: bool) -> AsyncIterator[Server]:
    if not hangs:
        yield _Index(CONNECTION, new_options())
        return
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield _Index({**CONNECTION, "url": f"https://127.0.0.1:{silent.getsockname()[1]}"}, new_options())


class _Elasticsearch:
    type = "elasticsearch"

    def unreachable(self) -> dict[str, Any]:
        return {**CONNECTION, "url": "https://127.0.0.1:1"}


class TestElasticsearch(_Elasticsearch, DeliverSuite):
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Server]:
        async with index(hangs) as server:
            yield server


class TestElasticsearchBatches(_Elasticsearch, DeliverBatchSuite):
    @asynccontextmanager
    async def server(self, *, hangs: bool = False) -> AsyncIterator[Server]:
        async with index(hangs) as server:
            yield server

    async def outcomes(
        self, options: dict[str, Any], *messages: Message, connection: dict[str, Any] = CONNECTION
    ) -> Sequence[Receipt | DeliveryError]:
        output = self.client(connection, options)
        try:
            return await output.deliver_batch(messages)
        finally:
            await output.close()

    async def statuses(self, options: dict[str, Any], *documents: Any) -> list[str]:
        """For each document its status when it is done, or else the reason of its error."""
        outcomes = await self.outcomes(options, *(message(json.dumps(document)) for document in documents))
        return [outcome.reason if isinstance(outcome, DeliveryError) else outcome.status for outcome in outcomes]

    def stored(self, options: dict[str, Any]) -> list[Any]:
        documents = [json.loads(source) for source in opensearch.sources(options["index"])]
        return sorted(documents, key=json.dumps)

    @pytest.mark.parametrize("compress", [True, False])
    async def test_every_kind_of_value_is_kept(self, compress: bool) -> None:
        options = new_options(compress=compress)
        # Dynamic mapping rejects integers beyond 64 bits.
        assert opensearch.api("PUT", options["index"], {"mappings": {"dynamic": False}}).ok
        numbers = b'{"large": 9223372036854775808, "decimal": 12345678901234567890.123456789, "exponent": 1e-7}'
        bodies = [*(json.dumps(document) for document in DOCUMENTS), numbers]
        outcomes = await self.outcomes(options, *map(message, bodies))
        assert [outcome.status for outcome in outcomes] == ["201"] * len(bodies)
        assert sorted(opensearch.sources(options["index"])) == sorted(bodies)

    async def test_a_document_with_line_breaks_is_one_document(self) -> None:
        options = new_options()
        body = b'{\r\n  "text": "a\\nb",\n  "n": 1.50\n}'
        await self.outcomes(options, message(body))
        assert opensearch.sources(options["index"]) == [b'{"text":"a\\nb","n":1.50}']

    async def test_a_repeat_replaces_its_document(self) -> None:
        options = new_options()
        sent = message(b'{"n": 1}')
        first, again = [*await self.outcomes(options, sent), *await self.outcomes(options, sent)]
        assert [first.status, again.status] == ["201", "200"]
        assert self.stored(options) == [{"n": 1}]

    async def test_index_id_and_routing_come_from_the_message(self) -> None:
        name = f"orders-{new_message_id()}"
        options = {"index": f"{name}-{{{{country}}}}", "document_id": "{{id}}", "routing": "{{customer}}"}
        awkward = 'a/b "ü" é, %2F?\n#'
        for country, document_id in (("br", awkward), ("de", 5), ("br", awkward)):
            document = {"country": country, "id": document_id, "customer": "c 1"}
            assert (await self.statuses(options, document))[0] in ("200", "201")
        assert len(opensearch.sources(f"{name}-br")) == len(opensearch.sources(f"{name}-de")) == 1
        hit = opensearch.api("GET", f"{name}-br/_search").json()["hits"]["hits"][0]
        assert (hit["_id"], hit["_routing"]) == (awkward, "c 1")

    async def test_each_action_does_what_it_says(self) -> None:
        options = new_options(document_id="{{id}}")
        assert await self.statuses(options | {"action": "create"}, {"id": 1, "a": 1}, {"id": 1, "a": 2}) == [
            "201",
            "409",
        ]
        assert self.stored(options) == [{"id": 1, "a": 1}]
        update = options | {"action": "update"}
        assert await self.statuses(update, {"id": 1, "b": [None]}, {"id": 2, "b": 1}) == [
            "200",
            "elasticsearch_document_missing_exception",
        ]
        assert await self.statuses(options | {"action": "upsert"}, {"id": 1, "a": 3}, {"id": 2, "b": 1}) == [
            "200",
            "201",
        ]
        assert self.stored(options) == [{"id": 1, "a": 3, "b": [None]}, {"id": 2, "b": 1}]
        assert await self.statuses(options | {"action": "delete"}, {"id": 1}, {"id": 3}) == ["200", "404"]
        deleting = options | {"delete_when": "gone"}
        assert await self.statuses(deleting, {"id": 2, "gone": True}, {"id": 4, "gone": False}) == ["200", "201"]
        assert self.stored(options) == [{"id": 4, "gone": False}]
        assert await self.statuses(new_options(action="delete"), {"id": 1}) == ["404"]

    async def test_a_message_that_is_not_newer_than_its_document_is_done_and_dropped(self) -> None:
        options = new_options(document_id="{{id}}", version="v", delete_when="gone")
        newest = {"id": 1, "v": 2**63 - 1}
        assert await self.statuses(options, {"id": 1, "v": 5}, {"id": 1, "v": 4}, {"id": 1, "v": 5}) == [
            "201",
            "409",
            "409",
        ]
        assert await self.statuses(options, {"id": 1, "v": 4, "gone": True}, newest) == ["409", "200"]
        assert self.stored(options) == [newest]
        assert await self.statuses(options, {"id": 1}, {"id": 1, "v": "6"}, {"id": 1, "v": 2**63}) == ["template"] * 3

    async def test_one_bad_message_does_not_fail_its_neighbours(self) -> None:
        options = new_options(document_id="{{id}}")
        assert await self.statuses(options, {"id": 1, "n": 1}) == ["201"]
        good, bad = message(b'{"id": 2, "n": 2}'), message(b'{"id": 3, "n": {"not": "a number"}}')
        outcomes = await self.outcomes(
            options, good, bad, message(b"no JSON"), message(b"[1]"), message(b"{}"), message(b'{"id": ""}')
        )
        [receipt, *errors] = outcomes
        assert isinstance(receipt, Receipt)
        assert [error.reason for error in errors if isinstance(error, DeliveryError)] == [
            "elasticsearch_mapper_parsing_exception",
            "not_json",
            "template",
            "template",
            "template",
        ]
        for error in errors:
            assert isinstance(error, DeliveryError)
            assert error.about_message
            assert not error.retryable
        assert "field [n]" in str(errors[0])
        assert len(self.stored(options)) == 2

    async def test_what_the_index_refuses_for_now_is_retried(self) -> None:
        options = new_options()
        assert opensearch.api("PUT", options["index"], {"settings": {"index.blocks.write": True}}).ok
        [blocked] = await self.outcomes(options, message())
        assert isinstance(blocked, DeliveryError)
        assert (blocked.reason, blocked.retryable, blocked.about_message) == (
            "elasticsearch_cluster_block_exception",
            True,
            False,
        )
        assert opensearch.api("PUT", f"{options['index']}/_settings", {"index.blocks.write": False}).ok
        assert await self.statuses(options, {}) == ["201"]

    async def test_an_index_that_must_not_be_made_is_a_fault_of_whoever_named_it(self) -> None:
        try:
            assert opensearch.api("PUT", "_cluster/settings", _auto_create("false")).ok
            [fixed] = await self.outcomes(new_options(), message())
            [varying] = await self.outcomes({"index": "orders-{{$message.id}}"}, message())
        finally:
            assert opensearch.api("PUT", "_cluster/settings", _auto_create("true")).ok
        assert isinstance(fixed, DeliveryError)
        assert isinstance(varying, DeliveryError)
        assert fixed.reason == varying.reason == "elasticsearch_index_not_found_exception"
        assert (fixed.retryable, fixed.about_message) == (True, False)
        assert (varying.retryable, varying.about_message) == (False, True)

    async def test_a_user_who_may_not_write_is_named(self) -> None:
        [outcome] = await self.outcomes(new_options(), message(), connection=READER)
        assert isinstance(outcome, DeliveryError)
        assert (outcome.reason, outcome.retryable, outcome.about_message) == (*_NOT_PERMITTED, False)

    async def test_a_user_who_may_do_nothing_is_named(self) -> None:
        with pytest.raises(DeliveryError) as failed:
            await self.outcomes(new_options(), message(), connection=STRANGER)
        assert (failed.value.reason, failed.value.retryable) == _NOT_PERMITTED

    async def test_a_wrong_password_is_named_without_secrets(self) -> None:
        wrong = _with_login(password="planted-but-wrong")
        with pytest.raises(DeliveryError) as failed:
            await self.outcomes(new_options(), message(), connection=wrong)
        assert (failed.value.reason, failed.value.retryable) == ("elasticsearch_401", True)
        self._hides_secrets(wrong, str(failed.value) + failed.value.response)

    async def test_a_batch_that_is_larger_than_the_cluster_takes_is_refused_for_what_is_in_it(self) -> None:
        """The engine halves such a batch."""
        options = new_options()
        large = [message(json.dumps({"n": number, "text": "x" * 900_000})) for number in range(4)]
        with pytest.raises(BatchRefusedError) as refused:
            await self.outcomes(options, *large)
        assert (refused.value.reason, refused.value.about_message) == ("elasticsearch_413", True)
        await self.outcomes(options, *large[:2])
        assert [document["n"] for document in self.stored(options)] == [0, 1]

    @pytest.mark.parametrize(
        ("authentication", "header"),
        [
            ({"type": "api_key", "key": "a2V5OnNlY3JldA=="}, "ApiKey a2V5OnNlY3JldA=="),
            ({"type": "bearer", "token": "t"}, "Bearer t"),
        ],
    )
    async def test_keys_and_tokens_are_sent(self, authentication: dict[str, str], header: str) -> None:
        async def done(_: web.Request) -> web.Response:
            return web.json_response({"items": [{"index": {"status": 201, "result": "created"}}]})

        async with receiver(done) as cluster:
            [outcome] = await self.outcomes(
                {"index": "orders"},
                message(b"{}"),
                connection={"url": f"{cluster.url}below", "authentication": authentication},
            )
        assert isinstance(outcome, Receipt)
        assert cluster.headers[0]["Authorization"] == header
        assert cluster.headers[0]["Content-Encoding"] == "gzip"
        assert cluster.bodies[0].endswith(b"}}\n{}\n")  # unpacked by the receiver

    @pytest.mark.parametrize(
        ("status", "body", "reason"),
        [
            (429, b'{"error": {"type": "circuit_breaking_exception", "reason": "full"}}', "circuit_breaking_exception"),
            (503, b"<html>", "503"),
        ],
    )
    async def test_a_cluster_that_is_busy_is_asked_again(self, status: int, body: bytes, reason: str) -> None:
        async def busy(_: web.Request) -> web.Response:
            return web.Response(status=status, body=body, headers={"Retry-After": "7"})

        async with receiver(busy) as cluster:
            with pytest.raises(DeliveryError) as failed:
                await self.outcomes({"index": "orders"}, message(), connection={"url": cluster.url})
        assert (failed.value.reason, failed.value.retryable) == (f"elasticsearch_{reason}", True)
        assert failed.value.retry_after == 7

    @pytest.mark.parametrize("status", ["0", "99", "600", "true", "201.0", '"201"', "1e400", "1e5000", "503"])
    async def test_neighbours_3_a_status_that_is_none_delivers_nothing(self, status: str) -> None:
        async def odd(_: web.Request) -> web.Response:
            return web.Response(text=f'{{"items": [{{"index": {{"status": {status}}}}}]}}')

        async with receiver(odd) as cluster:
            with pytest.raises(DeliveryError) as failed:
                await self.outcomes({"index": "orders"}, message(), connection={"url": cluster.url})
        assert (failed.value.reason, failed.value.retryable) == ("configuration", True)

    @pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"items": [1]}', b"[]"])
    async def test_something_else_at_the_address_is_named(self, body: bytes) -> None:
        async def other(_: web.Request) -> web.Response:
            return web.Response(body=body)

        async with receiver(other) as cluster:
            with pytest.raises(DeliveryError) as failed:
                await self.outcomes({"index": "orders"}, message(), connection={"url": cluster.url})
            with pytest.raises(CheckFailedError):
                await checked({"url": cluster.url})
        assert (failed.value.reason, failed.value.retryable) == ("configuration", True)


def _auto_create(value: str) -> dict[str, Any]:
    return {"transient": {"action.auto_create_index": value}}


async def checked(connection: dict[str, Any]) -> str:
    return await check_connection(connectors.get("elasticsearch"), ElasticsearchConnection.model_validate(connection))


async def test_a_connection_test_names_cluster_and_version() -> None:
    version = opensearch.api("GET", "").json()["version"]["number"]
    assert await checked(CONNECTION) == f"Connected to OpenSearch {version}, cluster headrace-tests."


async def test_a_connection_test_passes_for_a_login_that_may_not_see_the_cluster() -> None:
    assert await checked(STRANGER) == "Connected to a cluster whose name and version the login may not see."


async def test_a_connection_test_tells_whether_the_index_may_be_written_and_writes_nothing() -> None:
    name = new_options()["index"]
    assert (await checked({**CONNECTION, "test_index": name})).endswith(f"There is no index {name} yet.")
    assert opensearch.api("HEAD", name).status_code == 404
    assert opensearch.api("PUT", name).ok
    assert (await checked({**CONNECTION, "test_index": name})).endswith(f"The login may write to the index {name}.")
    assert opensearch.sources(name) == []
    with pytest.raises(CheckFailedError) as failed:
        await checked({**READER, "test_index": name})
    assert failed.value.field == "test_index"
    assert "writing was not tested" in await checked({**STRANGER, "test_index": name})
    assert opensearch.api("PUT", f"{name}/_settings", {"index.blocks.write": True}).ok
    with pytest.raises(CheckFailedError) as failed:
        await checked({**CONNECTION, "test_index": name})
    assert (failed.value.field, "index write" in str(failed.value)) == ("test_index", True)


@pytest.mark.parametrize(
    ("fields", "blamed"),
    [
        (_with_login(password="wrong"), "authentication"),
        ({"url": "https://no-such-host.invalid:9200"}, "url"),
        ({"ca": ""}, "ca"),
    ],
)
async def test_a_connection_test_names_the_field_to_blame(fields: dict[str, Any], blamed: str) -> None:
    with pytest.raises(CheckFailedError) as failed:
        await checked({**CONNECTION, **fields})
    assert failed.value.field == blamed


async def test_another_authority_is_not_trusted(tmp_path: Any) -> None:
    other = Authority(tmp_path, "other").certificate.read_text()
    with pytest.raises(CheckFailedError) as failed:
        await checked({**CONNECTION, "ca": other})
    assert failed.value.field == "ca"
    assert (await checked({**CONNECTION, "ca": other, "verify_tls": False})).startswith("Connected to OpenSearch")
    assert (await checked({**CONNECTION, "ca": other + CONNECTION["ca"]})).startswith("Connected to OpenSearch")


@pytest.mark.parametrize(
    "options",
    [
        {"index": "Orders"},
        {"index": "a b-{{x}}"},
        {"index": ""},
        {"index": "a", "document_id": ""},
        {"index": "a", "document_id": "{{$message.nothing}}"},
        {"index": "a", "action": "create", "delete_when": "gone"},
        {"index": "a", "action": "update", "version": "v"},
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ElasticsearchOutputOptions.model_validate(options)
