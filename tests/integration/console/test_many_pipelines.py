"""A configuration that is larger than one gRPC message."""

import asyncio
import uuid
from typing import Any

import grpc
import pytest
from asgiref.sync import sync_to_async

from backend.apps.manager import feed
from backend.apps.manager import grpc as manager
from backend.apps.pipelines import services
from backend.apps.pipelines.models import Pipeline
from backend.apps.workspaces.models import Workspace
from backend.domain.errors import ConfigError
from backend.manager_api import snapshot as stored
from backend.manager_api.client import ConfigClient
from backend.manager_api.generated import manager_pb2 as pb
from backend.manager_api.generated.manager_pb2_grpc import ManagerStub
from backend.network.redis_client import redis_client
from tests import factories
from tests.factories import make_pipelines
from tests.infra import REDIS_URL, SERVICE_TOKEN
from tests.integration.conftest import MANAGER_ADDRESS, RunningManager
from tests.ports import free_ports
from tests.waiting import LIMIT_SECONDS, PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)

PIPELINES = 1000
TRANSFORMS = [{"type": "set", "path": "a", "value": "x" * 5000}]
"""Of each of them, together more than 4 MiB, which is gRPC's limit of one message."""


@pytest.fixture
def pipelines(transactional_db: None) -> list[Pipeline]:
    return make_pipelines(factories.make_workspace(), PIPELINES, transforms=TRANSFORMS)


def client_of(address: str = MANAGER_ADDRESS) -> ConfigClient:
    return ConfigClient(manager_address=address, service_token=SERVICE_TOKEN, redis_url=REDIS_URL)


async def eventually_paused(client: ConfigClient, pipeline: Pipeline) -> None:
    await eventually(lambda: not client.pipeline(str(pipeline.pk)).accepting)  # type: ignore[union-attr]


async def eventually(condition: Any) -> None:
    """Within the minute in which the manager reads all again, since a busy Redis may not take an announcement."""
    async with asyncio.timeout(LIMIT_SECONDS * PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


async def test_every_pipeline_reaches_the_data_plane(pipelines: list[Pipeline], running: RunningManager) -> None:
    redis_client().flushdb()
    client = client_of()
    await client.start(timeout=60)
    try:
        assert all(client.pipeline(str(pipeline.pk)) for pipeline in pipelines)
        workspace = await sync_to_async(lambda: pipelines[0].workspace)()
        actor = await sync_to_async(factories.admin_of)(workspace)
        first, last = pipelines[0], pipelines[-1]
        await sync_to_async(services.pipeline_pause)(pipeline=first, actor=actor)
        await eventually_paused(client, first)
        await sync_to_async(services.pipeline_pause)(pipeline=last, actor=actor)
        await eventually_paused(client, last)
        await sync_to_async(services.pipeline_delete)(pipeline=last, actor=actor)
        await eventually(lambda: client.pipeline(str(last.pk)) is None)
    finally:
        await client.close()


async def test_without_the_manager_the_data_plane_starts_from_redis(pipelines: list[Pipeline]) -> None:
    redis_client().flushdb()
    await sync_to_async(services.snapshot_rewrite)()
    client = client_of(f"127.0.0.1:{free_ports(1)[0]}")
    await client.start(timeout=60)
    try:
        assert all(client.pipeline(str(pipeline.pk)) for pipeline in pipelines)
    finally:
        await client.close()


def test_a_rewrite_writes_only_what_differs(pipelines: list[Pipeline], monkeypatch: pytest.MonkeyPatch) -> None:
    redis = redis_client()
    redis.flushdb()
    read: list[str] = []
    published = services.selectors.published_snapshots

    def recorded(names: list[str]) -> Any:
        read.extend(names)
        return published(names)

    monkeypatch.setattr(services.selectors, "published_snapshots", recorded)
    services.snapshot_rewrite()
    assert redis.hlen(stored.PIPELINES) == len(read) == PIPELINES
    read.clear()
    services.snapshot_rewrite()
    assert read == []
    Pipeline.objects.filter(pk=pipelines[0].pk).update(paused=True)
    Pipeline.objects.filter(pk=pipelines[1].pk).update(published=None)
    gone = str(uuid.uuid4())  # deleted while Redis was down
    redis.hset(stored.PIPELINES, gone, b"{}")
    redis.hset(stored.REVISIONS, gone, b"")
    services.snapshot_rewrite()
    assert set(read) == {str(pipelines[0].pk), str(pipelines[1].pk), gone}
    assert not redis.hexists(stored.PIPELINES, gone)
    assert not redis.hexists(stored.PIPELINES, str(pipelines[1].pk))
    written = redis.hget(stored.PIPELINES, str(pipelines[0].pk))
    assert not stored.load_pipeline(written).accepting  # type: ignore[arg-type]


async def test_a_change_while_the_pieces_arrive_is_the_last_word(
    pipelines: list[Pipeline], running: RunningManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Announced after its pipeline was read for a piece, and before that piece is sent."""
    first, last = pipelines[0], pipelines[-1]
    read, changed = manager._entries, []

    def changing(names: list[str]) -> list[pb.Pipeline]:
        entries = read(names)
        for pipeline in (first, last):
            if str(pipeline.pk) in names and pipeline.pk not in changed:
                changed.append(pipeline.pk)
                Pipeline.objects.filter(pk=pipeline.pk).update(paused=True)
                services.pipeline_announce(pipeline_id=pipeline.pk)
        return entries

    monkeypatch.setattr(manager, "_entries", changing)
    redis_client().flushdb()
    client = client_of()
    await client.start(timeout=60)
    try:
        for pipeline in (first, last):
            await eventually_paused(client, pipeline)
    finally:
        await client.close()


async def test_when_nothing_changed_nothing_is_read_again(
    pipelines: list[Pipeline], running: RunningManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_REREAD_SECONDS", 0.1)
    client = client_of()
    await client.start(timeout=60)
    entries, revisions, read, rounds = manager._entries, feed.published_revisions, [], []

    def recorded(names: list[str]) -> list[pb.Pipeline]:
        read.append(names)
        return entries(names)

    def counted(*arguments: Any) -> dict[str, Any]:
        rounds.append(arguments)
        return revisions(*arguments)

    monkeypatch.setattr(manager, "_entries", recorded)
    monkeypatch.setattr(feed, "published_revisions", counted)
    try:
        await eventually(lambda: len(rounds) > 3)
        assert read == []
        # One that could not be announced.
        await sync_to_async(Pipeline.objects.filter(pk=pipelines[0].pk).update)(paused=True)
        await eventually_paused(client, pipelines[0])
        assert read == [[str(pipelines[0].pk)]]
    finally:
        await client.close()


async def test_filters_are_listed_in_pieces(running: RunningManager) -> None:
    condition = {"type": "in", "field": "country", "values": [f"{n}" * 900 for n in range(6)]}
    source = {"type": "filter", "condition": condition}
    made = await sync_to_async(lambda: make_pipelines(factories.make_workspace(), PIPELINES, input=source))()
    async with grpc.aio.insecure_channel(MANAGER_ADDRESS) as channel:
        stub = ManagerStub(channel)  # type: ignore[no-untyped-call]
        metadata = (("authorization", f"Bearer {SERVICE_TOKEN}"),)
        pieces = [p async for p in stub.ListFilters(pb.ListFiltersRequest(), metadata=metadata, wait_for_ready=True)]
    assert {one.pipeline_id for piece in pieces for one in piece.filters} == {str(pipeline.pk) for pipeline in made}


def test_a_configuration_that_fits_into_no_message_is_refused(workspace: Workspace) -> None:
    long = [{"type": "set", "path": "a", "value": "x" * 600_000}] * 2
    with pytest.raises(ConfigError) as refused:
        factories.make_pipeline(workspace, transforms=long)
    assert "1,048,576" in str(refused.value.errors["config"])
