"""The connector for n8n, against a stand-in of its public API; and, by ``make test-n8n``, against a real one, whose
installation is large."""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from aiohttp import web

from backend.domain.capabilities import Batch, DeliveryError, InputRecord, ReadBatch, Register, RegistrationState
from backend.domain.connector import CheckFailedError, RuntimeConnector, check_connection, connectors
from backend.domain.inputs.connector import ConnectorInput
from backend.domain.uses import bind
from backend.network import outbound
from tests import infra, n8n
from tests.integration.connectors.suites import (
    DOCUMENTS,
    Reaching,
    ReadBatchSuite,
    Registering,
    RegisterSuite,
    Source,
)
from tests.ports import free_ports
from tests.receiver import receiver
from tests.waiting import LIMIT_SECONDS, wait_until

SECRET = "planted-secret-of-n8n"


@pytest.fixture(scope="module", params=["stand-in", pytest.param("n8n", marks=pytest.mark.n8n)])
def server(request: pytest.FixtureRequest) -> Iterator[infra.Server]:
    running = n8n.stand_in() if request.param == "stand-in" else n8n.n8n_server()
    running.start()
    n8n.api_key.cache_clear()  # each has its own
    yield running
    running.stop()


@asynccontextmanager
async def hanging() -> AsyncIterator[str]:
    """The URL of a server that never answers, which is waited for a second."""
    from backend.connectors.n8n import client

    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "_READ_SECONDS", 1.0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


class Use:
    """An input's use of n8n, registered as a pipeline's publishing does."""

    def __init__(self, workflow: dict[str, Any], node: str = "Items", **connection: Any) -> None:
        self.name = f"headrace_{uuid.uuid4().hex}"
        self.connection = {"url": n8n.URL, "api_key": SECRET, **connection}
        self.options = {"workflow": workflow, "node": node}
        self.made: dict[str, Any] = {}

    async def call(self, call: Callable[[Any], Any]) -> Any:
        runtime = RuntimeConnector(type="n8n", connection=self.connection)
        register = bind(runtime, self.options, lambda type: type.capability(Register), "")
        try:
            await register.open()
            return await call(register)
        except DeliveryError as error:
            raise error.without(register.secrets()) from None
        finally:
            await register.close()

    async def register(self) -> None:
        self.made = await self.call(lambda register: register.register(self.name, self.made))

    async def unregister(self) -> None:
        await self.call(lambda register: register.unregister(self.name, self.made))

    async def warning(self) -> str:
        state: RegistrationState = await self.call(lambda register: register.state(self.name, self.made))
        return state.warning

    async def read(self, breakpoint: Any = None) -> list[Batch]:
        use = ConnectorInput(connector=uuid.uuid4(), options=self.options)
        registered = {use.place: self.made} if self.made else {}
        reader = use.bind(RuntimeConnector(type="n8n", connection=self.connection, registered=registered))
        assert isinstance(reader, ReadBatch)
        try:
            async with asyncio.timeout(60):
                await reader.open()
                return [batch async for batch in reader.read(json.loads(json.dumps(breakpoint)))]
        finally:
            await reader.close()

    async def read_until(self, count: int, breakpoint: Any = None) -> tuple[list[Any], Any]:
        """That many messages, which may come in several batches, and the breakpoint after them."""
        read: list[Any] = []
        async with asyncio.timeout(90):
            while True:
                for batch in await self.read(breakpoint):
                    read += [json.loads(record.body) for record in batch.records]
                    breakpoint = batch.breakpoint
                if len(read) >= count:
                    return read, breakpoint
                await asyncio.sleep(0.2)


@asynccontextmanager
async def registered(*others: dict[str, Any], **connection: Any) -> AsyncIterator[tuple[Use, str]]:
    """A use of a workflow that runs when its webhook is called, and the webhook's path."""
    path = f"hook-{uuid.uuid4()}"
    use = Use(n8n.webhook_workflow(path, *others), api_key=n8n.api_key(), **connection)
    await use.register()
    try:
        yield use, path
    finally:
        await use.unregister()


async def call(path: str, *items: Any, **more: Any) -> None:
    body = {"items": list(items), **more}
    answer = await asyncio.to_thread(requests.post, f"{n8n.URL}/webhook/{path}", json=body, timeout=LIMIT_SECONDS)
    assert answer.ok, answer.text


def workflow_of(use: Use) -> dict[str, Any]:
    workflow: dict[str, Any] = n8n.asked("GET", f"workflows/{use.made['workflow']}").json()
    return workflow


def credential_ids(use: Use) -> set[str]:
    references = [reference for node in workflow_of(use)["nodes"] for reference in node.get("credentials", {}).values()]
    return {reference["id"] for reference in references}


class TestAddress(Reaching):
    type = "n8n"

    def unreachable(self) -> dict[str, Any]:
        return {"url": "http://127.0.0.1:1", "api_key": SECRET}


class Executions(Source):
    """A workflow whose webhook is called with some texts at a time: n8n's numbers are not JSON's."""

    def __init__(self, use: Use, path: str) -> None:
        super().__init__(use.connection, use.options, use.made)
        self._path = path
        self._calls = 0

    async def write(self, bodies: Sequence[bytes]) -> None:
        for first in range(0, len(bodies), 5):
            await call(self._path, *({"text": body.decode()} for body in bodies[first : first + 5]))
            self._calls += 1
        await asyncio.to_thread(wait_until, self._all_have_ended, timeout=60)

    def _all_have_ended(self) -> bool:
        query = {"workflowId": self.registered["workflow"], "status": "success"}
        return len(n8n.asked("GET", "executions", params=query).json()["data"]) == self._calls


@pytest.mark.usefixtures("server")
class TestRead(ReadBatchSuite):
    type = "n8n"

    @asynccontextmanager
    async def source(self, *, hangs: bool = False) -> AsyncIterator[Source]:
        path = f"hook-{uuid.uuid4()}"
        use = Use(n8n.webhook_workflow(path), api_key=n8n.api_key())
        await use.register()
        source = Executions(use, path)
        try:
            if not hangs:
                yield source
                return
            async with hanging() as url:
                source.connection = use.connection | {"url": url}
                yield source
        finally:
            n8n.asked("DELETE", f"workflows/{use.made['workflow']}")

    def unreachable(self) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{free_ports(1)[0]}", "api_key": SECRET}

    def body(self, record: InputRecord) -> bytes:
        text: str = json.loads(record.body)["text"]
        return text.encode()


class Workflows(Registering):
    async def present(self) -> set[str]:
        workflows = n8n.asked("GET", "workflows", params={"limit": "250"}).json()["data"]
        return {workflow["name"] for workflow in workflows if self.name in workflow["name"]}


@pytest.mark.usefixtures("server")
class TestRegister(RegisterSuite):
    type = "n8n"

    @asynccontextmanager
    async def system(self, *, hangs: bool = False) -> AsyncIterator[Registering]:
        connection: dict[str, Any] = {"url": n8n.URL, "api_key": n8n.api_key()}
        workflows = Workflows(connection, {"workflow": n8n.webhook_workflow(f"hook-{uuid.uuid4()}"), "node": "Items"})
        async with hanging() if hangs else contextlib.nullcontext(n8n.URL) as workflows.connection["url"]:
            yield workflows
        workflows.connection["url"] = n8n.URL
        await self.remove(workflows)

    def unreachable(self) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{free_ports(1)[0]}", "api_key": SECRET}


@pytest.mark.usefixtures("server")
class TestWithN8n:
    async def test_each_item_of_the_node_is_a_message_and_is_read_once(self) -> None:
        async with registered() as (use, path):
            assert await use.read() == [Batch((), {"workflow": use.made["workflow"], "after": 0, "open": []})]
            documents = [document for document in DOCUMENTS if "large" not in document]
            await call(path, *documents)
            read, breakpoint = await use.read_until(len(documents))
            assert read == documents
            await call(path, {"n": 1}, {"n": 2})
            await call(path, {"n": 3})
            read, breakpoint = await use.read_until(3, breakpoint)
            assert read == [{"n": 1}, {"n": 2}, {"n": 3}]
            assert [batch.records for batch in await use.read(breakpoint)] == [()]

    async def test_what_is_read_again_has_the_same_identities_also_from_a_breakpoint_between(self) -> None:
        async with registered() as (use, path):
            for number in range(5):
                await call(path, {"n": number}, {"n": -number})
            await use.read_until(10)
            whole = await use.read()
            identities = [record.identity for batch in whole for record in batch.records]
            assert len(set(identities)) == 10
            for number, batch in enumerate(whole):
                rest = [record.identity for other in await use.read(batch.breakpoint) for record in other.records]
                assert rest == [record.identity for other in whole[number + 1 :] for record in other.records]

    async def test_an_execution_that_takes_long_is_read_after_later_ones(self) -> None:
        wait = {
            "name": "Wait",
            "type": "n8n-nodes-base.wait",
            "typeVersion": 1.1,
            "webhookId": str(uuid.uuid4()),
            "parameters": {"amount": "={{ $json.body.seconds }}", "unit": "seconds"},
        }
        async with registered(wait) as (use, path):
            use.options["workflow"]["nodes"][-1]["parameters"]["fieldToSplitOut"] = "body.items"
            await call(path, {"n": "slow"}, seconds=8)
            await call(path, {"n": "quick"}, seconds=0)
            read, breakpoint = await use.read_until(1)
            assert read == [{"n": "quick"}]
            assert len(breakpoint["open"]) == 1
            read, breakpoint = await use.read_until(1, breakpoint)
            assert read == [{"n": "slow"}]
            assert breakpoint["open"] == []

    async def test_an_execution_that_fails_is_passed_over(self) -> None:
        async with registered() as (use, path):
            await call(path)
            answer = await asyncio.to_thread(
                requests.post, f"{n8n.URL}/webhook/{path}", json={"nothing": True}, timeout=LIMIT_SECONDS
            )
            assert answer.ok
            await call(path, {"n": 1})
            read, _ = await use.read_until(1)
            assert read == [{"n": 1}]

    async def test_nodes_use_the_credentials_of_the_connector_and_may_post_to_a_pipeline(self) -> None:
        async def accept(_: web.Request) -> web.Response:
            return web.json_response({"id": "1"}, status=202)

        async with receiver(accept) as pipeline:
            post = {
                "name": "Post",
                "type": "n8n-nodes-base.httpRequest",
                "typeVersion": 4.2,
                "parameters": {
                    "method": "POST",
                    "url": f"{pipeline.url}v1/pipelines/ID/messages",
                    "authentication": "genericCredentialType",
                    "genericAuthType": "httpHeaderAuth",
                    "sendBody": True,
                    "specifyBody": "json",
                    "jsonBody": "={{ JSON.stringify($json.body) }}",
                    "options": {},
                },
                "credentials": {"httpHeaderAuth": {"name": "headrace"}},
            }
            fields = {"name": "Authorization", "value": f"Bearer {SECRET}"}
            credential = {"name": "headrace", "type": "httpHeaderAuth", "data": json.dumps(fields)}
            async with registered(post, credentials=[credential]) as (use, path):
                await call(path, {"city": "São Paulo"})
                await pipeline.received(1)
                assert json.loads(pipeline.bodies[0]) == {"items": [{"city": "São Paulo"}]}
                assert pipeline.headers[0]["Authorization"] == f"Bearer {SECRET}"
                (before,) = credential_ids(use)
                fields["value"] = "Bearer rotated"
                use.connection["credentials"] = [credential | {"data": json.dumps(fields)}]
                await use.register()
                (after,) = credential_ids(use)
                assert before != after
                assert n8n.asked("DELETE", f"credentials/{before}").status_code == 404
                await call(path, {"city": "東京"})
                await pipeline.received(2)
                assert pipeline.headers[1]["Authorization"] == "Bearer rotated"
            assert n8n.asked("DELETE", f"credentials/{after}").status_code == 404

    async def test_a_new_version_changes_the_workflow(self) -> None:
        async with registered() as (use, path):
            before = use.made
            use.made = {}  # as after a crash before it was stored
            use.options["workflow"]["name"] = "Renamed"
            await use.register()
            assert use.made == before
            assert workflow_of(use)["name"] == f"Renamed ({use.name})"
            await call(path, {"n": 1})
            assert (await use.read_until(1))[0] == [{"n": 1}]

    async def test_what_was_made_is_removed(self) -> None:
        async with registered() as (use, _):
            assert workflow_of(use)["active"]
            assert await use.warning() == ""
            n8n.asked("POST", f"workflows/{use.made['workflow']}/deactivate")
            assert "not active" in await use.warning()
            made, use.made = use.made, {}
            await use.unregister()
            await use.unregister()
            assert n8n.asked("GET", f"workflows/{made['workflow']}").status_code == 404
            use.made = made
            assert "was removed" in await use.warning()

    async def test_what_n8n_refuses_is_said_at_its_field_without_secrets(self) -> None:
        async def refused(use: Use) -> DeliveryError:
            with pytest.raises(DeliveryError) as failed:
                await use.register()
            await use.unregister()
            assert SECRET not in f"{failed.value}{failed.value.response}"
            return failed.value

        key = {"api_key": n8n.api_key()}
        workflow = n8n.webhook_workflow("x")
        untriggered = workflow | {"nodes": workflow["nodes"][1:], "connections": {}}
        error = await refused(Use(untriggered, **key))
        assert (error.option, error.retryable) == ("workflow", False)
        assert "trigger" in str(error)
        workflow["nodes"][0]["credentials"] = {"httpHeaderAuth": {"name": "erp"}}
        error = await refused(Use(workflow, **key))
        assert (error.option, "add it to the connector" in str(error)) == ("workflow", True)
        wrong = {"name": "erp", "type": "httpHeaderAuth", "data": json.dumps({"password": SECRET})}
        error = await refused(Use(workflow, credentials=[wrong], **key))
        assert "credential erp of the connector is refused" in str(error)
        with pytest.raises(DeliveryError, match="does not accept the API key"):
            await Use(n8n.webhook_workflow("x")).register()

    async def test_a_connection_test_says_what_was_reached(self) -> None:
        assert (await check(api_key=n8n.api_key())).endswith("accepts the key.")
        with pytest.raises(CheckFailedError) as failed:
            await check()
        assert failed.value.field == "api_key"


async def check(**connection: Any) -> str:
    connector = connectors.get("n8n")
    model = connector.connection_model.model_validate({"url": n8n.URL, "api_key": SECRET, **connection})
    return await check_connection(connector, model)


async def failure(**connection: Any) -> DeliveryError:
    use = Use(n8n.webhook_workflow("x"), **connection)
    use.made = {"workflow": "w"}
    with pytest.raises(DeliveryError) as failed:
        await use.read()
    assert SECRET not in str(failed.value)
    with pytest.raises(DeliveryError) as unmade:
        await use.register()
    assert (unmade.value.reason, unmade.value.retryable) == (failed.value.reason, failed.value.retryable)
    return failed.value


async def test_a_server_that_cannot_be_reached() -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    assert (await failure(url=url)).retryable
    with pytest.raises(CheckFailedError) as failed:
        await check(url=url)
    assert failed.value.field == "url"


async def test_an_address_that_is_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    from backend.network import http_client

    monkeypatch.setattr(http_client, "outbound_policy", lambda: outbound.OutboundPolicy([]))
    async with answering(200, "{}") as url:
        error = await failure(url=url)
        assert (error.reason, error.retryable) == ("forbidden", False)


@asynccontextmanager
async def answering(status: int, text: str) -> AsyncIterator[str]:
    """The address of a server that is no n8n."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=text)

    async with receiver(answer) as running:
        yield running.url


@pytest.mark.parametrize(
    ("status", "text", "sentence", "field"),
    [
        (401, '{"message":"unauthorized"}', "does not accept the API key", "api_key"),
        (403, '{"message":"Forbidden"}', "lacks a scope", "api_key"),
        (404, '{"message":"Not Found"}', "", "url"),
        (503, '{"message":"Database is not ready!"}', "Database is not ready!", "url"),
        (200, "<html>", "is not n8n's public API", "url"),
    ],
)
async def test_a_server_that_refuses_or_is_none(status: int, text: str, sentence: str, field: str) -> None:
    async with answering(status, text) as url:
        if sentence:
            error = await failure(url=url)
            assert sentence in str(error)
            assert error.retryable
        with pytest.raises(CheckFailedError) as failed:
            await check(url=url)
        assert failed.value.field == field


async def test_a_server_that_hangs_is_cut_off() -> None:
    async with hanging() as url, asyncio.timeout(LIMIT_SECONDS):
        error = await failure(url=url)
        assert (error.reason, error.retryable) == ("timeout", True)


async def test_a_server_whose_list_never_ends_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request is answered."""
    from backend.connectors.n8n import register

    async def page(_: web.Request) -> web.Response:
        await asyncio.sleep(0.01)
        return web.json_response({"data": [{"id": 7, "name": "other", "status": "success"}], "nextCursor": "more"})

    async with receiver(page) as running, asyncio.timeout(LIMIT_SECONDS):
        use = Use(n8n.webhook_workflow("x"), url=running.url)
        use.made = {"workflow": "w"}
        use.options["timeout_seconds"] = 1
        sentence = f"n8n at {urlsplit(running.url).netloc} has not answered everything that was asked for within 1 sec"
        with pytest.raises(DeliveryError, match=sentence) as failed:
            await use.read()
        assert (failed.value.reason, failed.value.retryable) == ("timeout", True)
        monkeypatch.setattr(register, "_CALL_SECONDS", 1.0)
        for call in (use.register, use.unregister):
            with pytest.raises(DeliveryError, match=sentence):
                await call()


async def test_a_server_that_answers_byte_by_byte_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    from backend.connectors import n8n as connector
    from backend.connectors.n8n import register

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.05)

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    sentence = f"n8n at {address} has not answered everything that was asked for within 1 seconds"
    async with server, asyncio.timeout(LIMIT_SECONDS):
        use = Use(n8n.webhook_workflow("x"), url=f"http://{address}")
        use.made = {"workflow": "w"}
        monkeypatch.setattr(register, "_STATE_SECONDS", 1.0)
        with pytest.raises(DeliveryError, match=sentence):
            await use.warning()
        monkeypatch.setattr(connector, "_CHECK_SECONDS", 1.0)
        with pytest.raises(CheckFailedError, match=sentence) as failed:
            await check(url=f"http://{address}")
        assert failed.value.field == "url"


async def test_an_input_that_was_not_registered_is_not_read() -> None:
    with pytest.raises(DeliveryError, match="publish the pipeline again"):
        await Use(n8n.webhook_workflow("x")).read()


def test_options_and_credentials_that_do_not_fit() -> None:
    connector = connectors.get("n8n")
    options = connector.capability(ReadBatch).options_model  # type: ignore[union-attr]
    for wrong, sentence in (
        ({"workflow": n8n.webhook_workflow("x"), "node": "Nowhere"}, "has no node 'Nowhere'; it has Webhook, Items"),
        ({"workflow": {"name": "x"}, "node": "Items"}, "has no nodes"),
    ):
        with pytest.raises(ValueError, match=sentence):
            options.model_validate(wrong)
    for data in ("[]", "nonsense"):
        credential = {"name": "a", "type": "b", "data": data}
        with pytest.raises(ValueError, match="Enter a JSON object"):
            connector.connection_model.model_validate({"url": n8n.URL, "api_key": "k", "credentials": [credential]})
