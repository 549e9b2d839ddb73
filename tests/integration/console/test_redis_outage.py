"""A Redis that hangs, which is worse than one that is stopped."""

import asyncio
import signal
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from rest_framework.test import APIClient

from backend.apps.manager import feed
from backend.apps.pipelines import services
from backend.apps.pipelines.models import Pipeline
from backend.apps.workspaces.models import ApiKey, Workspace
from backend.apps.workspaces.services import api_key_create, key_hash
from backend.manager_api import snapshot as stored
from backend.manager_api.client import ConfigClient, ConfigUnavailableError
from backend.network.redis_client import async_redis_client, redis_client
from backend.resilience.gate import Gate
from backend.telemetry import keys, recorder
from tests import factories
from tests.infra import REDIS_URL, SERVICE_TOKEN, Server
from tests.integration.conftest import MANAGER_ADDRESS, RunningManager
from tests.ports import free_ports
from tests.waiting import LIMIT_SECONDS, PATIENCE, wait_until

_HANGS_SECONDS = 60.0
"""Many times the few seconds after which the product no longer waits for Redis."""


@contextmanager
def hung(server: Server) -> Iterator[None]:
    """Redis hangs meanwhile. Who waits for it all the same waits until it goes on, and fails."""
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    going_on = threading.Timer(_HANGS_SECONDS, server.process.send_signal, [signal.SIGCONT])
    going_on.start()
    try:
        yield
        assert going_on.is_alive(), "It waited for Redis."
    finally:
        going_on.cancel()
        server.process.send_signal(signal.SIGCONT)


@pytest.fixture
async def data_plane(running: RunningManager) -> AsyncIterator[ConfigClient]:
    config = ConfigClient(manager_address=MANAGER_ADDRESS, service_token=SERVICE_TOKEN, redis_url=REDIS_URL)
    await config.start()
    yield config
    await config.close()


async def eventually(condition: Any) -> None:
    async with asyncio.timeout(LIMIT_SECONDS * PATIENCE):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.mark.django_db
@pytest.mark.parametrize("page", ["metrics", "errors", "outputs"])
def test_a_page_says_that_redis_is_not_available(
    client: APIClient, workspace: Workspace, redis_server: Server, page: str
) -> None:
    url = f"/api/v1/pipelines/{factories.make_pipeline(workspace).pk}/{page}/"
    client.raise_request_exception = False
    with hung(redis_server):
        answer = client.get(url)
    assert (answer.status_code, answer["content-type"]) == (503, "application/problem+json")
    assert answer.json()["service"] == "Redis"
    wait_until(lambda: client.get(url).status_code == 200)


@pytest.mark.django_db
def test_a_publish_does_not_depend_on_redis(
    client: APIClient, workspace: Workspace, redis_server: Server, on_commit: Any
) -> None:
    pipeline = factories.make_pipeline(workspace)
    with hung(redis_server), on_commit():
        answer = client.post(f"/api/v1/pipelines/{pipeline.pk}/publish/")
    assert (answer.status_code, answer.json()["published_version"]) == (200, 1)
    with hung(redis_server), on_commit():
        key = client.post("/api/v1/api-keys/", {"name": "k", "scopes": ["ingest"]}, format="json")
    assert key.status_code == 201
    redis_client().delete(stored.PIPELINES, stored.INGEST_KEYS)
    services.snapshot_rewrite()  # as the manager does every minute
    assert redis_client().hget(stored.PIPELINES, str(pipeline.pk)) is not None
    assert redis_client().hget(stored.INGEST_KEYS, key_hash(key.json()["key"])) is not None


@pytest.mark.django_db(transaction=True)
async def test_the_data_plane_learns_what_was_not_announced(
    monkeypatch: pytest.MonkeyPatch, data_plane: ConfigClient, redis_server: Server
) -> None:
    monkeypatch.setattr(feed, "_REREAD_SECONDS", 0.5)
    monkeypatch.setattr(feed, "_WITHOUT_REDIS_SECONDS", 0.5)

    def publish() -> tuple[Pipeline, ApiKey]:
        workspace = factories.make_workspace()
        actor = factories.admin_of(workspace)
        key, _ = api_key_create(workspace=workspace, actor=actor, name="k", scopes=["ingest"])
        return services.pipeline_publish(pipeline=factories.make_pipeline(workspace), actor=actor), key

    first, _ = await sync_to_async(publish)()
    await eventually(lambda: data_plane.pipeline(str(first.pk)))
    redis_server.stop(signal.SIGKILL)
    try:
        without, key = await sync_to_async(publish)()
        await eventually(lambda: data_plane.pipeline(str(without.pk)) and data_plane.key(key.hash))
        assert data_plane.connected
    finally:
        redis_server.start()
    after, _ = await sync_to_async(publish)()
    await eventually(lambda: data_plane.pipeline(str(after.pk)))


@pytest.mark.django_db
def test_a_rewrite_keeps_what_is_announced_meanwhile(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = factories.make_pipeline(workspace)
    published, rounds = services.selectors.published_snapshots, []

    def read_before_a_publish(names: list[str]) -> Any:
        snapshots = published(names)
        if not rounds:
            rounds.append(pipeline.pk)
            services.pipeline_publish(pipeline=pipeline, actor=factories.admin_of(workspace))
            services.pipeline_announce(pipeline_id=pipeline.pk)
        return snapshots

    monkeypatch.setattr(services.selectors, "published_snapshots", read_before_a_publish)
    redis_client().hset(stored.REVISIONS, str(pipeline.pk), "of a version that was deleted")
    services.snapshot_rewrite()
    assert rounds
    assert redis_client().hget(stored.PIPELINES, str(pipeline.pk)) is not None


async def test_the_data_plane_does_not_wait_for_a_hung_redis(redis_server: Server) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    client = ConfigClient(manager_address=nobody, service_token="", redis_url=REDIS_URL)
    with hung(redis_server), pytest.raises(ConfigUnavailableError):
        await client.start(timeout=3.0)
    await client.close()


@pytest.mark.django_db(transaction=True)
async def test_what_was_announced_to_an_emptied_redis_is_not_taken_for_everything(redis_server: Server) -> None:
    """The ingest would refuse valid keys, and deny pipelines that are published."""

    def publish() -> tuple[Pipeline, ApiKey]:
        workspace = factories.make_workspace()
        actor = factories.admin_of(workspace)
        key, _ = api_key_create(workspace=workspace, actor=actor, name="k", scopes=["ingest"])
        pipeline = services.pipeline_publish(pipeline=factories.make_pipeline(workspace), actor=actor)
        redis_client().delete(stored.PIPELINES, stored.REVISIONS, stored.INGEST_KEYS, stored.COMPLETE)
        services.pipeline_announce(pipeline_id=pipeline.pk)
        return pipeline, key

    pipeline, key = await sync_to_async(publish)()
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    client = ConfigClient(manager_address=nobody, service_token="", redis_url=REDIS_URL)
    with pytest.raises(ConfigUnavailableError):
        await client.start(timeout=3.0)
    await sync_to_async(services.snapshot_rewrite)()  # as the manager does every minute
    await eventually(lambda: client.loaded)  # it goes on asking
    assert client.pipeline(str(pipeline.pk))
    assert client.key(key.hash)
    await client.close()


async def test_a_client_goes_on_after_redis_was_started_anew(redis_server: Server) -> None:
    client = async_redis_client(REDIS_URL)
    assert await client.ping()
    assert redis_client().ping()
    redis_server.stop()
    redis_server.start()
    assert await client.ping()
    assert redis_client().ping()
    await client.aclose()


@pytest.mark.django_db(transaction=True)
async def test_the_data_plane_learns_of_changes_while_redis_hangs(
    monkeypatch: pytest.MonkeyPatch, data_plane: ConfigClient, redis_server: Server
) -> None:
    monkeypatch.setattr(feed, "_WITHOUT_REDIS_SECONDS", 0.5)

    def publish() -> tuple[Pipeline, ApiKey]:
        workspace = factories.make_workspace()
        actor = factories.admin_of(workspace)
        key, _ = api_key_create(workspace=workspace, actor=actor, name="k", scopes=["ingest"])
        return services.pipeline_publish(pipeline=factories.make_pipeline(workspace), actor=actor), key

    assert redis_server.process is not None
    redis_server.process.send_signal(signal.SIGSTOP)
    try:
        pipeline, key = await sync_to_async(publish)()
        await eventually(lambda: data_plane.pipeline(str(pipeline.pk)) and data_plane.key(key.hash))
    finally:
        redis_server.process.send_signal(signal.SIGCONT)
    after, _ = await sync_to_async(publish)()
    await eventually(lambda: data_plane.pipeline(str(after.pk)))


async def test_counts_do_not_grow_with_the_length_of_an_outage(
    redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_COUNTS_KEPT", 500)
    monkeypatch.setattr(recorder, "_COUNTS_PER_BATCH", 100)
    pipeline, now = str(uuid.uuid4()), [1_900_000_000]
    monkeypatch.setattr(recorder.time, "time", lambda: now[0])
    recording = recorder.Recorder(REDIS_URL)
    redis_server.stop(signal.SIGKILL)
    try:
        for _ in range(2 * 86400 // 10):  # two days without Redis
            recording.count(pipeline, "input.accepted", 10)
            now[0] += 10
            if now[0] % 3600 == 0:
                await recording._flush()
                assert len(recording._counts) <= 500
    finally:
        redis_server.start()
    await recording.close()
    counted = redis_client().hget(keys.totals(pipeline), "input.accepted")
    assert int(counted) == 2 * 86400  # type: ignore[arg-type]


async def test_nothing_that_is_recorded_of_a_pipeline_stays_forever(redis_server: Server) -> None:
    pipeline = str(uuid.uuid4())
    recording = recorder.Recorder(REDIS_URL)
    recording.count(pipeline, "input.accepted")
    recording.error(pipeline, stage="adapting", reason="internal", message="It failed.", message_id="")
    await recording.close()
    expiries = {key: redis_client().ttl(key) for key in redis_client().scan_iter(f"*{pipeline}*")}
    assert {keys.totals(pipeline).encode(), keys.errors(pipeline).encode()} <= expiries.keys()
    assert not [key for key, seconds in expiries.items() if not 0 < seconds <= keys.UNUSED_KEPT]


async def test_closing_does_not_wait_for_a_hung_redis(redis_server: Server) -> None:
    recording = recorder.Recorder(REDIS_URL)
    gate = Gate(REDIS_URL)
    recording.start()
    gate.start()
    with hung(redis_server):
        for n in range(5000):
            recording.count(str(n), "input.accepted")
        await gate.close()
        await recording.close()


def test_a_process_has_one_pool() -> None:
    assert redis_client() is redis_client()
