"""How the data plane's copy of the configuration follows changed connectors, with a manager in memory."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, cast
from uuid import UUID, uuid4

import grpc
import pytest

from backend.domain import json
from backend.domain.pipeline import PipelineConfig, PipelineSnapshot
from backend.manager_api import client as config_client
from backend.manager_api import snapshot as stored
from backend.manager_api.client import ConfigClient
from backend.manager_api.generated import manager_pb2 as pb
from tests.waiting import LIMIT_SECONDS


class Away(grpc.aio.AioRpcError):
    def __init__(self) -> None:
        super().__init__(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "It is away.")


class Manager:
    """The stub of a manager. Its stream sends what the test puts into ``events``, and ends at None."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[pb.WatchEvent | None] = asyncio.Queue()
        self.passwords: dict[UUID, str] = {}
        self.pipelines: dict[str, UUID] = {}
        self.calls: Counter[str] = Counter()
        self.is_away = False
        self.answering = asyncio.Event()
        self.answering.set()

    def add(self, connector: UUID) -> str:
        """A pipeline with one output, which uses the connector."""
        pipeline = str(uuid4())
        self.pipelines[pipeline] = connector
        self.passwords.setdefault(connector, "first")
        return pipeline

    def save(self, connector: UUID, password: str) -> None:
        """The change is announced."""
        self.passwords[connector] = password
        self.push(connector)

    def push(self, *connectors: UUID) -> None:
        self.events.put_nowait(pb.WatchEvent(changes=pb.Piece(connectors_changed=map(str, connectors))))

    def complete_snapshot(self) -> None:
        self.events.put_nowait(pb.WatchEvent(snapshot_end=pb.SnapshotEnd()))

    # -- the stub's methods ---------------------------------------------------------

    def WatchPipelines(self, *_: Any, **__: Any) -> "Manager":
        return self

    async def read(self) -> Any:
        return await self.events.get() or grpc.aio.EOF  # type: ignore[attr-defined]

    async def GetRuntimeConfig(self, request: pb.PipelineRequest, **_: Any) -> pb.RuntimeConfig:
        self.calls["runtime"] += 1
        connector = self.pipelines[request.pipeline_id]
        config = PipelineConfig.model_validate({"outputs": [{"name": "out", "connector": str(connector)}]})
        snapshot = PipelineSnapshot(
            id=UUID(request.pipeline_id), workspace_id=uuid4(), version=1, accepting=True, config=config
        )
        sent = self._connector(connector)
        sent.registered["outputs/out"] = json.dumps({"made": "for this pipeline"})
        await self.answering.wait()
        return pb.RuntimeConfig(
            pipeline=pb.Pipeline(id=request.pipeline_id, snapshot=stored.dump_pipeline(snapshot)),
            connectors={str(connector): sent},
        )

    async def GetConnectors(self, request: pb.ConnectorsRequest, **_: Any) -> pb.Connectors:
        self.calls["connectors"] += 1
        if self.is_away:
            raise Away
        return pb.Connectors(connectors={name: self._connector(UUID(name)) for name in request.ids})

    def _connector(self, connector: UUID) -> pb.RuntimeConnector:
        return pb.RuntimeConnector(type="http", connection=json.dumps({"password": self.passwords[connector]}))


@pytest.fixture
def manager() -> Manager:
    return Manager()


@pytest.fixture
async def client(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ConfigClient]:
    """What it holds is never too old, so that only what is pushed can replace it."""
    monkeypatch.setattr(config_client, "_RUNTIME_FRESH_SECONDS", 86400.0)
    monkeypatch.setattr(config_client, "_RETRY_SECONDS", 0.01)
    started = ConfigClient(manager_address="nobody.invalid:1", service_token="t", redis_url="redis://nobody.invalid")
    started._stub = cast(Any, manager)
    manager.complete_snapshot()
    await started.start()
    yield started
    await started.close()


async def changed(client: ConfigClient) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        await client.connectors_change()


async def until(condition: Any) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


async def password_of(client: ConfigClient, pipeline: str) -> Any:
    [output] = (await client.runtime(pipeline, 1)).outputs
    return output.connector.connection["password"]


async def test_a_changed_connector_is_fetched_once_for_all_pipelines_that_use_it(
    client: ConfigClient, manager: Manager
) -> None:
    shared, other = uuid4(), uuid4()
    pipelines, neighbour = [manager.add(shared) for _ in range(500)], manager.add(other)
    for pipeline in [*pipelines, neighbour]:
        assert await password_of(client, pipeline) == "first"
    untouched = await client.runtime(neighbour, 1)
    before = manager.calls.copy()
    manager.save(shared, "second")
    await changed(client)
    assert {await password_of(client, pipeline) for pipeline in pipelines} == {"second"}
    assert manager.calls - before == {"connectors": 1}
    assert await client.runtime(neighbour, 1) is untouched


async def test_what_was_registered_for_a_pipeline_stays(client: ConfigClient, manager: Manager) -> None:
    connector = uuid4()
    pipeline = manager.add(connector)
    made = (await client.runtime(pipeline, 1)).connectors[connector].registered
    manager.save(connector, "second")
    await changed(client)
    assert (await client.runtime(pipeline, 1)).connectors[connector].registered == made != {}


async def test_a_connector_that_nothing_here_uses_is_not_asked_for(client: ConfigClient, manager: Manager) -> None:
    connector = uuid4()
    pipeline = manager.add(connector)
    await client.runtime(pipeline, 1)
    manager.save(uuid4(), "second")
    manager.save(connector, "third")  # events are in order
    await changed(client)
    assert manager.calls["connectors"] == 1


async def test_a_change_that_makes_no_difference_replaces_nothing(client: ConfigClient, manager: Manager) -> None:
    """Such as that of a name: a stream is not opened again, and an output keeps its client."""
    connector = uuid4()
    pipeline = manager.add(connector)
    held = await client.runtime(pipeline, 1)
    manager.push(connector)
    await until(lambda: manager.calls["connectors"] == 1 and not client._outdated)
    await until(lambda: client._refreshing is not None and client._refreshing.done())
    assert await client.runtime(pipeline, 1) is held
    assert not client._connectors_changed.is_set()


async def test_what_is_held_serves_until_a_changed_connector_can_be_fetched(
    client: ConfigClient, manager: Manager
) -> None:
    connector = uuid4()
    pipeline = manager.add(connector)
    await client.runtime(pipeline, 1)
    manager.is_away = True
    manager.save(connector, "second")
    await until(lambda: manager.calls["connectors"] > 3)
    assert await password_of(client, pipeline) == "first"
    manager.is_away = False
    await changed(client)
    assert await password_of(client, pipeline) == "second"


async def test_a_change_that_comes_while_a_configuration_is_fetched_is_not_lost(
    client: ConfigClient, manager: Manager
) -> None:
    connector = uuid4()
    pipeline = manager.add(connector)
    manager.answering.clear()
    fetching = asyncio.create_task(client.runtime(pipeline, 1))
    await until(lambda: manager.calls["runtime"] == 1)
    manager.save(connector, "second")
    await until(manager.events.empty)
    manager.answering.set()
    assert (await fetching).connectors[connector].connection == {"password": "first"}
    await changed(client)
    held = client.held_runtime(pipeline, 1)
    assert held is not None
    assert held.connectors[connector].connection == {"password": "second"}


async def test_what_changed_while_no_stream_was_open_is_fetched_with_the_next(
    client: ConfigClient, manager: Manager
) -> None:
    connector = uuid4()
    pipeline = manager.add(connector)
    snapshot = (await client.runtime(pipeline, 1)).snapshot
    manager.passwords[connector] = "second"
    manager.events.put_nowait(None)
    piece = pb.Piece(pipelines=[pb.Pipeline(id=pipeline, snapshot=stored.dump_pipeline(snapshot))])
    manager.events.put_nowait(pb.WatchEvent(snapshot_piece=piece))
    manager.complete_snapshot()
    await changed(client)
    assert await password_of(client, pipeline) == "second"


async def test_what_is_fresh_is_there_without_waiting(
    client: ConfigClient, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = manager.add(uuid4())
    assert client.fresh_runtime(pipeline, 1) is None
    held = await client.runtime(pipeline, 1)
    assert client.fresh_runtime(pipeline, 1) is held
    assert client.fresh_runtime(pipeline, 2) is None
    # What is old is fetched anew by whoever waits for it.
    monkeypatch.setattr(config_client, "_RUNTIME_FRESH_SECONDS", 0.0)
    assert client.fresh_runtime(pipeline, 1) is None
    assert client.held_runtime(pipeline, 1) is held
