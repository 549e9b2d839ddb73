import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError, connections
from pydantic import SecretStr

from backend.apps.connectors.models import Connector
from backend.apps.connectors.services import connector_update
from backend.apps.manager import grpc as manager
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.services import pipeline_pause, pipeline_publish, pipeline_update, snapshot_rewrite
from backend.apps.workspaces.models import Workspace
from backend.apps.workspaces.services import api_key_create, api_key_revoke, key_hash
from backend.domain.capabilities import DeliveryError
from backend.manager_api import client as config_client
from backend.manager_api.client import ConfigClient, ConfigUnavailableError, UnknownPipelineError
from backend.manager_api.credentials import NoCredentialsError, channel_credentials, server_credentials
from backend.manager_api.generated import manager_pb2 as pb
from backend.manager_api.generated.manager_pb2_grpc import ManagerStub
from backend.settings import Settings
from tests import factories
from tests.certificates import Authority
from tests.infra import REDIS_URL, SERVICE_TOKEN
from tests.integration.conftest import MANAGER_ADDRESS, RunningManager
from tests.waiting import LIMIT_SECONDS

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
async def client(running: RunningManager, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ConfigClient]:
    monkeypatch.setattr(config_client, "_CALL_SECONDS", LIMIT_SECONDS)  # callers try again; these tests count the calls
    await sync_to_async(snapshot_rewrite)()
    started = ConfigClient(manager_address=MANAGER_ADDRESS, service_token=SERVICE_TOKEN, redis_url=REDIS_URL)
    await started.start()
    yield started
    await started.close()


def make_published() -> tuple[Workspace, Pipeline]:
    workspace = factories.make_workspace()
    connector = factories.make_connector(workspace, authentication={"type": "bearer", "token": "t0p-secret"})
    pipeline = factories.make_pipeline(workspace, connector)
    return workspace, pipeline_publish(pipeline=pipeline, actor=factories.admin_of(workspace))


async def eventually(condition: Any) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_publish_reaches_the_data_plane_at_once(client: ConfigClient) -> None:
    workspace, pipeline = await sync_to_async(make_published)()
    await eventually(lambda: client.pipeline(str(pipeline.pk)) is not None)
    actor = await sync_to_async(factories.admin_of)(workspace)
    await sync_to_async(pipeline_pause)(pipeline=pipeline, actor=actor)
    await eventually(lambda: not client.pipeline(str(pipeline.pk)).accepting)  # type: ignore[union-attr]


async def test_runtime_configuration_has_secrets_and_the_snapshot_has_none(client: ConfigClient) -> None:
    _, pipeline = await sync_to_async(make_published)()
    runtime = await client.runtime(str(pipeline.pk), 1)
    assert runtime.outputs[0].connector.connection["authentication"]["token"] == "t0p-secret"
    assert "t0p-secret" not in repr(runtime)
    assert "t0p-secret" not in runtime.snapshot.model_dump_json()


async def test_many_messages_that_wait_for_one_configuration_ask_once(
    client: ConfigClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, pipeline = await sync_to_async(make_published)()
    answer, calls = manager._runtime_config, []

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return answer(*arguments)

    monkeypatch.setattr(manager, "_runtime_config", counted)
    await asyncio.gather(*(client.runtime(str(pipeline.pk), 1) for _ in range(500)))
    assert len(calls) == 1


async def test_past_versions_can_be_had(client: ConfigClient) -> None:
    workspace, pipeline = await sync_to_async(make_published)()
    version = await sync_to_async(lambda: pipeline.published)()
    assert version is not None
    actor = await sync_to_async(factories.admin_of)(workspace)
    changed = version.config | {"transforms": [{"type": "set", "path": "a", "value": 1}]}
    await sync_to_async(pipeline_update)(pipeline=pipeline, actor=actor, name=pipeline.name, config=changed)
    await sync_to_async(pipeline_publish)(pipeline=pipeline, actor=actor)
    await eventually(lambda: getattr(client.pipeline(str(pipeline.pk)), "version", 0) == 2)
    assert (await client.version(str(pipeline.pk), 1)).config.transforms == []
    with pytest.raises(UnknownPipelineError):
        await client.version(str(pipeline.pk), 99)
    with pytest.raises(UnknownPipelineError):
        await client.runtime(str(uuid.uuid4()), 1)


async def test_keys_come_and_go(client: ConfigClient) -> None:
    workspace = await sync_to_async(factories.make_workspace)()
    actor = await sync_to_async(factories.admin_of)(workspace)
    key, text = await sync_to_async(api_key_create)(workspace=workspace, actor=actor, name="k", scopes=["ingest"])
    await eventually(lambda: client.key(key_hash(text)) is not None)
    await sync_to_async(api_key_revoke)(key=key, actor=actor)
    await eventually(lambda: client.key(key_hash(text)) is None)


async def test_without_the_manager_the_client_goes_on_and_starts_from_redis(
    running: RunningManager, client: ConfigClient
) -> None:
    _, pipeline = await sync_to_async(make_published)()
    pipeline_id = str(pipeline.pk)
    await client.runtime(pipeline_id, 1)
    await eventually(lambda: client.pipeline(pipeline_id) is not None)
    await running.stop()
    await eventually(lambda: not client.connected)
    assert client.pipeline(pipeline_id) is not None
    assert (await client.runtime(pipeline_id, 1)).outputs
    late = ConfigClient(manager_address=MANAGER_ADDRESS, service_token=SERVICE_TOKEN, redis_url=REDIS_URL)
    await late.start()
    assert late.pipeline(pipeline_id) is not None
    await running.start()
    await eventually(lambda: client.connected and late.connected)
    await late.close()


async def test_neighbours_9_a_changed_connection_and_a_removed_secret_are_used_at_once(
    client: ConfigClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the age of what is held."""
    monkeypatch.setattr(config_client, "_RUNTIME_FRESH_SECONDS", 86400.0)
    workspace, pipeline = await sync_to_async(make_published)()
    _, other = await sync_to_async(make_published)()
    pipeline_id = str(pipeline.pk)
    connector = await sync_to_async(workspace.connectors.get)()
    actor = await sync_to_async(factories.admin_of)(workspace)
    await eventually(lambda: client.pipeline(pipeline_id) and client.pipeline(str(other.pk)))
    other_held = await client.runtime(str(other.pk), 1)
    await client.runtime(pipeline_id, 1)

    async def saved(token: str | None) -> None:
        authentication = {"type": "bearer", "token": token} if token else {"type": "none"}
        connection = {"url": "https://api.example.com", "authentication": authentication}
        await sync_to_async(connector_update)(
            connector=connector, actor=actor, name=connector.name, connection=connection
        )
        async with asyncio.timeout(LIMIT_SECONDS):
            await client.connectors_change()

    for token in ("s3cond", None, "th1rd"):
        await saved(token)
        [output] = (await client.runtime(pipeline_id, 1)).outputs
        assert output.connector.connection["authentication"].get("token") == token
    assert await client.runtime(str(other.pk), 1) is other_held


async def test_neighbours_9_what_changed_while_no_stream_was_open_is_fetched_again(
    running: RunningManager, client: ConfigClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_client, "_RUNTIME_FRESH_SECONDS", 86400.0)
    workspace, pipeline = await sync_to_async(make_published)()
    pipeline_id = str(pipeline.pk)
    await eventually(lambda: client.pipeline(pipeline_id) is not None)
    await client.runtime(pipeline_id, 1)
    await running.stop()
    await eventually(lambda: not client.connected)
    connector = await sync_to_async(workspace.connectors.get)()
    actor = await sync_to_async(factories.admin_of)(workspace)
    connection = {"url": "https://new.example.com", "authentication": {"type": "none"}}
    await sync_to_async(connector_update)(connector=connector, actor=actor, name="new", connection=connection)
    await running.start()
    async with asyncio.timeout(LIMIT_SECONDS):
        while "new" not in str((await client.runtime(pipeline_id, 1)).outputs[0].connector.connection["url"]):
            await asyncio.sleep(0.05)


async def test_a_connector_that_many_pipelines_use_is_fetched_once_when_it_changes(
    client: ConfigClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_client, "_RUNTIME_FRESH_SECONDS", 86400.0)
    workspace = await sync_to_async(factories.make_workspace)()
    actor = await sync_to_async(factories.admin_of)(workspace)

    def make() -> tuple[Connector, list[str]]:
        connector = factories.make_connector(workspace, authentication={"type": "bearer", "token": "first"})
        pipelines = [factories.make_pipeline(workspace, connector) for _ in range(20)]
        return connector, [str(pipeline_publish(pipeline=pipeline, actor=actor).pk) for pipeline in pipelines]

    connector, names = await sync_to_async(make)()
    await eventually(lambda: all(client.pipeline(name) is not None for name in names))

    async def tokens() -> set[str]:
        runtimes = [await client.runtime(name, 1) for name in names]
        return {runtime.outputs[0].connector.connection["authentication"]["token"] for runtime in runtimes}

    assert await tokens() == {"first"}
    asked: list[list[str]] = []
    answer = manager._connectors

    def counted(ids: list[str]) -> pb.Connectors:
        asked.append(ids)
        return answer(ids)

    monkeypatch.setattr(manager, "_connectors", counted)
    monkeypatch.setattr(manager, "_runtime_config", None)
    connection = {"url": "https://api.example.com", "authentication": {"type": "bearer", "token": "second"}}
    await sync_to_async(connector_update)(connector=connector, actor=actor, name="renamed", connection=connection)
    async with asyncio.timeout(LIMIT_SECONDS):
        await client.connectors_change()
    assert await tokens() == {"second"}
    assert asked == [[str(connector.pk)]]


async def test_a_manager_that_starts_again_changes_nothing_that_is_held(
    running: RunningManager, client: ConfigClient
) -> None:
    _, pipeline = await sync_to_async(make_published)()
    await eventually(lambda: client.pipeline(str(pipeline.pk)) is not None)
    held = await client.runtime(str(pipeline.pk), 1)
    asked = client._refreshing
    await running.stop()
    await eventually(lambda: not client.connected)
    await running.start()
    await eventually(lambda: client._refreshing is not None and client._refreshing is not asked)
    await eventually(lambda: client._refreshing is not None and client._refreshing.done())
    assert await client.runtime(str(pipeline.pk), 1) is held


async def test_a_connector_that_is_only_renamed_changes_nothing_that_is_held(
    client: ConfigClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, pipeline = await sync_to_async(make_published)()
    await eventually(lambda: client.pipeline(str(pipeline.pk)) is not None)
    held = await client.runtime(str(pipeline.pk), 1)
    connector = await sync_to_async(workspace.connectors.get)()
    actor = await sync_to_async(factories.admin_of)(workspace)
    asked, loop = asyncio.Event(), asyncio.get_running_loop()
    answer = manager._connectors

    def noted(ids: list[str]) -> pb.Connectors:
        loop.call_soon_threadsafe(asked.set)
        return answer(ids)

    monkeypatch.setattr(manager, "_connectors", noted)
    await sync_to_async(connector_update)(
        connector=connector, actor=actor, name="renamed", connection=connector.connection
    )
    async with asyncio.timeout(LIMIT_SECONDS):
        await asked.wait()
    await eventually(lambda: client._refreshing is not None and client._refreshing.done())
    assert client.held_runtime(str(pipeline.pk), 1) is held
    assert not client._connectors_changed.is_set()


async def test_a_wrong_token_is_refused(running: RunningManager) -> None:
    async with grpc.aio.insecure_channel(MANAGER_ADDRESS) as channel:
        stub = ManagerStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.GetPipeline(
                pb.PipelineRequest(), metadata=(("authorization", "Bearer no"),), wait_for_ready=True
            )
    assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED


async def test_a_tampered_secret_fails_that_connector_alone(client: ConfigClient) -> None:
    from backend.apps.connectors.models import StoredSecret

    _, broken = await sync_to_async(make_published)()
    _, sound = await sync_to_async(make_published)()

    def tamper() -> None:
        stored = StoredSecret.objects.get(connector__workspace=broken.workspace_id)
        sealed = bytearray(stored.sealed)
        sealed[-1] ^= 1
        stored.sealed = bytes(sealed)
        stored.save()

    await sync_to_async(tamper)()
    assert not (await client.runtime(str(sound.pk), 1)).outputs[0].connector.error
    [output] = (await client.runtime(str(broken.pk), 1)).outputs
    assert "was changed since it was saved" in output.connector.error
    with pytest.raises(DeliveryError, match="was changed since it was saved"):
        output.config.bind(output.connector)


def environment_of(authority: Authority, name: str, trusted: Authority) -> Settings:
    certificate, key = authority.issue(name)
    return Settings(
        manager_certificate=str(certificate), manager_key=str(key), manager_authority=str(trusted.certificate)
    )


async def test_with_certificates_both_sides_prove_who_they_are(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    stop = asyncio.Event()
    credentials = server_credentials(environment_of(ours, "manager", ours))
    serving = asyncio.create_task(
        manager.serve(
            address=MANAGER_ADDRESS, service_token="", redis_url=REDIS_URL, stop=stop, credentials=credentials
        )
    )

    async def answer(channel: grpc.aio.Channel) -> grpc.StatusCode:
        async with channel:
            request = ManagerStub(channel).GetPipeline(
                pb.PipelineRequest(pipeline_id=str(uuid.uuid4())), timeout=LIMIT_SECONDS
            )
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await request
            return refused.value.code()

    def secure(environment: Settings) -> grpc.aio.Channel:
        return grpc.aio.secure_channel(MANAGER_ADDRESS, channel_credentials(environment))

    async with asyncio.timeout(60):
        while await answer(secure(environment_of(ours, "ingest", ours))) != grpc.StatusCode.NOT_FOUND:
            await asyncio.sleep(0.05)
    for channel in (
        secure(environment_of(theirs, "stranger", ours)),  # signed by somebody else
        secure(environment_of(ours, "misled", theirs)),  # trusts somebody else
        grpc.aio.insecure_channel(MANAGER_ADDRESS),
    ):
        assert await answer(channel) in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    stop.set()
    await serving
    await sync_to_async(connections.close_all)()


def test_without_token_and_certificates_nobody_is_served() -> None:
    with pytest.raises(NoCredentialsError, match="HEADRACE_SERVICE_TOKEN"):
        server_credentials(Settings(service_token=SecretStr("")))


async def test_a_stored_configuration_that_cannot_be_read_stops_nobody_elses(client: ConfigClient) -> None:
    from backend.apps.pipelines.models import PipelineVersion

    _, sound = await sync_to_async(make_published)()
    _, broken = await sync_to_async(make_published)()

    def damage() -> None:
        version = PipelineVersion.objects.get(pipeline=broken)
        version.config = {**version.config, "outputs": "nonsense"}
        version.save()
        snapshot_rewrite()

    await sync_to_async(damage)()
    await sync_to_async(broken.refresh_from_db)()
    assert "cannot be read" in broken.failure
    fresh = ConfigClient(manager_address=MANAGER_ADDRESS, service_token=SERVICE_TOKEN, redis_url=REDIS_URL)
    await fresh.start()
    # The manager may send what it knew a moment ago, and the change behind it.
    await eventually(lambda: fresh.pipeline(str(sound.pk)) is not None and fresh.pipeline(str(broken.pk)) is None)
    # Its messages become dead letters with the reason, instead of holding back those of others.
    with pytest.raises(UnknownPipelineError, match="cannot be read"):
        await fresh.runtime(str(broken.pk), 1)
    assert (await fresh.runtime(str(sound.pk), 1)).outputs
    await fresh.close()


async def test_what_goes_wrong_with_one_pipeline_is_its_own_configuration_error(
    client: ConfigClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, sound = await sync_to_async(make_published)()
    _, broken = await sync_to_async(make_published)()
    connection, snapshot = manager.connection_with_secrets, manager.snapshot_by_number

    def no_connection(connector: Connector) -> Any:
        if connector.workspace_id == broken.workspace_id:
            raise ZeroDivisionError("t0p-secret")
        return connection(connector)

    def no_snapshot(pipeline_id: uuid.UUID, version: int) -> Any:
        if pipeline_id == broken.pk:
            raise ZeroDivisionError("t0p-secret")
        return snapshot(pipeline_id, version)

    monkeypatch.setattr(manager, "connection_with_secrets", no_connection)
    [output] = (await client.runtime(str(broken.pk), 1)).outputs
    assert output.connector.error.startswith("Connector ")
    assert "ZeroDivisionError" in output.connector.error
    assert "t0p-secret" not in output.connector.error
    monkeypatch.setattr(manager, "snapshot_by_number", no_snapshot)
    fresh = ConfigClient(manager_address=MANAGER_ADDRESS, service_token=SERVICE_TOKEN, redis_url=REDIS_URL)
    await fresh.start()
    with pytest.raises(UnknownPipelineError, match="cannot be prepared: ZeroDivisionError"):
        await fresh.runtime(str(broken.pk), 1)
    assert not (await fresh.runtime(str(sound.pk), 1)).outputs[0].connector.error
    await fresh.close()


async def test_while_the_database_is_away_messages_wait(client: ConfigClient, monkeypatch: pytest.MonkeyPatch) -> None:
    _, pipeline = await sync_to_async(make_published)()

    def away(*_: Any) -> None:
        raise OperationalError("The connection is lost.")

    monkeypatch.setattr(manager, "snapshot_by_number", away)
    with pytest.raises(ConfigUnavailableError):
        await client.runtime(str(pipeline.pk), 1)
