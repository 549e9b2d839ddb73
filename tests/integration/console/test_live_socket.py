import asyncio
import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.contrib.sessions.models import Session
from django.test import Client

from backend.apps.deliveries.services import breaker_set
from backend.apps.monitoring import consumers, live
from backend.apps.monitoring.api.live import LiveNewsSerializer
from backend.apps.monitoring.models import CountMinute
from backend.apps.pipelines.services import pipeline_publish
from backend.apps.sql.models import SqlSource
from backend.apps.usage.models import UsageMinute
from backend.apps.workspaces.models import Membership, User, Workspace
from backend.config.asgi import application
from backend.network.redis_client import redis_client
from backend.resilience.scripts import OutputKey
from backend.telemetry import keys
from tests import factories
from tests.factories import make_letter
from tests.waiting import LIMIT_SECONDS

pytestmark = pytest.mark.django_db(transaction=True)


def cookie_of(user: User) -> bytes:
    client = Client()
    client.force_login(user)
    return f"sessionid={client.cookies['sessionid'].value}".encode()


class Socket(ApplicationCommunicator):
    """A browser's end."""

    def __init__(self, cookie: bytes = b"", workspace: str = "", query: bytes = b"") -> None:
        headers = [(b"host", b"localhost"), (b"origin", b"http://localhost"), (b"cookie", cookie)]
        query = f"workspace={workspace}".encode() if workspace else query
        scope = {"type": "websocket", "path": "/ws/live/", "query_string": query, "headers": headers}
        super().__init__(application, scope | {"subprotocols": []})

    async def connect(self) -> None:
        await self.send_input({"type": "websocket.connect"})
        assert (await self.receive_output(30))["type"] == "websocket.accept"

    async def send_json(self, value: object) -> None:
        await self.send_input({"type": "websocket.receive", "text": json.dumps(value)})

    async def receive_json(self) -> dict[str, Any]:
        received: dict[str, Any] = json.loads((await self.receive_output(30))["text"])
        return received

    async def news_with(self, pipeline: str, *names: str) -> dict[str, Any]:
        """The first news that have the pipeline under each of these names, which may first come in different rounds."""
        for _ in range(5000):
            news = await self.receive_json()
            if all(pipeline in news[name] for name in names):
                return news
        raise AssertionError(f"There were never {' and '.join(names)} of the pipeline.")

    async def disconnect(self) -> None:
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(LIMIT_SECONDS)


def a_pipeline() -> tuple[Workspace, str]:
    workspace = factories.make_workspace()
    return workspace, str(factories.make_pipeline(workspace).pk)


async def test_a_stranger_is_told_so_and_gets_nothing() -> None:
    socket = Socket()
    await socket.connect()
    assert (await socket.receive_output(30)) == {"type": "websocket.close", "code": 4401}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_INTERVAL", 0.05)
    monkeypatch.setattr(consumers, "_CHECK_SECONDS", 0.1)
    monkeypatch.setattr(consumers, "broadcaster", live.Broadcaster())


async def test_pipelines_of_other_workspaces_do_not_exist() -> None:
    workspace, mine = await sync_to_async(a_pipeline)()
    _, foreign = await sync_to_async(a_pipeline)()
    user = await sync_to_async(factories.admin_of)(workspace)
    socket = Socket(await sync_to_async(cookie_of)(user))
    await socket.connect()
    await socket.send_json({"pipelines": [foreign, "nonsense", mine]})
    news = await socket.news_with(mine, "pipelines")
    assert foreign not in news["pipelines"]
    await socket.send_json({"pipelines": []})
    while (await socket.receive_json())["pipelines"]:
        pass
    await socket.disconnect()


@pytest.mark.parametrize(
    "sent", [{"text": "{"}, {"text": "[" * 100_000}, {"text": r'"\ud800"'}, {"bytes": b"\x00"}], ids=str
)
async def test_a_message_that_is_no_document_ends_its_socket_alone(sent: dict[str, Any]) -> None:
    workspace, pipeline = await sync_to_async(a_pipeline)()
    user = await sync_to_async(factories.admin_of)(workspace)
    cookie = await sync_to_async(cookie_of)(user)
    socket, neighbour = Socket(cookie), Socket(cookie)
    for one in (socket, neighbour):
        await one.connect()
    await socket.send_input({"type": "websocket.receive", **sent})
    while (output := await socket.receive_output(30))["type"] != "websocket.close":
        pass
    assert output["code"] == 1007
    await neighbour.send_json({"pipelines": [pipeline]})
    await neighbour.news_with(pipeline, "pipelines")
    for one in (socket, neighbour):
        await one.disconnect()


async def test_a_workspace_that_is_not_the_users_is_refused() -> None:
    workspace, _ = await sync_to_async(a_pipeline)()
    user = await sync_to_async(factories.make_user)()
    socket = Socket(await sync_to_async(cookie_of)(user), workspace.slug)
    await socket.connect()
    assert (await socket.receive_output(30)) == {"type": "websocket.close", "code": 4401}


def failing_pipeline(workspace: Workspace) -> str:
    """With a rate limit, messages that wait for it, an open breaker, and deliveries that were billed."""
    connector = factories.make_connector(workspace)
    limit = {"messages": 1, "period_seconds": 3600, "burst": 4}
    outputs = [{"name": "out", "connector": str(connector.pk), "rate_limit": limit}]
    actor = factories.admin_of(workspace)
    pipeline = pipeline_publish(pipeline=factories.make_pipeline(workspace, outputs=outputs), actor=actor)
    for reason in ("rate_limited", "rate_limited", "http_500"):
        make_letter(pipeline, reason=reason)
    breaker_set(pipeline=pipeline, output="out", to_open=True, seconds=600, actor=actor)
    redis_client().set(OutputKey(str(pipeline.pk), "out").limit, time.time() + 2 * 3600 * 1.01)
    redis_client().set(OutputKey(str(pipeline.pk), "out").hold, time.time() + 3600)
    # Of a second that the last few never leave behind, in each minute that may be read.
    for minutes in range(10):
        key = keys.by_second(str(pipeline.pk), int(time.time()) // 60 + minutes)
        redis_client().hset(key, f"input.accepted|{int(time.time()) + 3600}", 7)
    minute = datetime.now(UTC).replace(second=0, microsecond=0)
    for minutes, deliveries in ((0, 5), (-50_000, 9)):
        UsageMinute.objects.create(
            workspace_id=workspace.pk,
            pipeline_id=pipeline.pk,
            output="out",
            minute=minute + timedelta(minutes=minutes),
            deliveries=deliveries,
            bytes=10 * deliveries,
        )
    CountMinute.objects.create(pipeline_id=pipeline.pk, minute=minute, counts={}, waiting=12)
    return str(pipeline.pk)


async def test_every_socket_of_a_workspace_gets_all_that_is_live_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = await sync_to_async(factories.make_workspace)()
    pipeline = await sync_to_async(failing_pipeline)(workspace)
    user = await sync_to_async(factories.admin_of)(workspace)
    reads: list[list[str]] = []
    read = live._counts
    monkeypatch.setattr(live, "_counts", lambda client, pipelines: reads.append(pipelines) or read(client, pipelines))
    cookie = await sync_to_async(cookie_of)(user)
    sockets = [Socket(cookie, workspace.slug), Socket(cookie)]
    for socket in sockets:
        await socket.connect()
        await socket.send_json({"pipelines": [pipeline]})
    for socket in sockets:
        news = await socket.news_with(pipeline, "outputs", "pipelines")
        LiveNewsSerializer(data=news).is_valid(raise_exception=True)
        assert max(seconds["input.accepted"] for seconds in news["pipelines"][pipeline].values()) == 7
        output = news["outputs"][pipeline]["out"]
        limit = {"tokens": 3, "most": 5, "waiting": 2, "messages": 1, "period_seconds": 3600.0}
        assert output["rate_limit"] == limit
        assert news["limits"] == [{"pipeline": pipeline, "output": "out", "rate_limit": limit}]
        assert (output["dead_letters"], output["breaker"]["state"]) == (3, "open")
        left = datetime.fromisoformat(output["held_until"]) - datetime.now(UTC)
        assert timedelta(minutes=50) < left <= timedelta(hours=1)
        [condition] = news["conditions"]
        assert (condition["pipeline"], condition["dead_letters"]) == (pipeline, 3)
        status = condition["status"]
        assert (status["state"], status["place"], [one["state"] for one in status["more"]]) == (
            "blocked",
            "out",
            ["degraded"],
        )
        assert (news["waiting"]["messages"], news["waiting"]["pipelines"]) == (12, {pipeline: 12})
        assert (news["usage"]["deliveries"], news["usage"]["bytes"]) == (5, 50)
    source = {"workspace": workspace, "name": "views", "topic": "views", "definition": "CREATE STREAM views (a INT)"}
    await SqlSource.objects.acreate(**source)
    async with asyncio.timeout(LIMIT_SECONDS):
        while (await sockets[0].receive_json())["sql_sources"] == news["sql_sources"]:
            pass
    # Both are served by the same reads, which end with the last socket.
    assert all(len(pipelines) <= 1 for pipelines in reads)
    for socket in sockets:
        await socket.disconnect()
    assert consumers.broadcaster._tasks == []


async def test_stages_are_asked_about_once_for_all_workspaces(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ask, read = live.stage_troubles, live._stored
    monkeypatch.setattr(live, "stage_troubles", lambda: asked.append("stages") or ask())
    monkeypatch.setattr(
        live, "_stored", lambda workspace, *more: asked.append(workspace.slug) or read(workspace, *more)
    )
    sockets = []
    for _ in range(2):
        workspace, _ = await sync_to_async(a_pipeline)()
        user = await sync_to_async(factories.admin_of)(workspace)
        socket = Socket(await sync_to_async(cookie_of)(user), workspace.slug)
        await socket.connect()
        sockets.append(socket)
    async with asyncio.timeout(LIMIT_SECONDS):
        while not any(len(set(a_round.split())) == 2 for a_round in " ".join(asked).split("stages")):
            await sockets[0].receive_json()
    for socket in sockets:
        await socket.disconnect()


async def test_the_sums_and_limits_of_a_workspace_are_told_whatever_is_shown() -> None:
    workspace = await sync_to_async(factories.make_workspace)()
    pipeline = await sync_to_async(failing_pipeline)(workspace)
    other, _ = await sync_to_async(a_pipeline)()
    await sync_to_async(failing_pipeline)(other)
    socket = Socket(await sync_to_async(cookie_of)(await sync_to_async(factories.admin_of)(workspace)))
    await socket.connect()
    async with asyncio.timeout(LIMIT_SECONDS):
        news = await socket.receive_json()
        while not news["rates"] or not news["rates"]["delivered"]:
            # Ever the newest second, so that one of them is among the three that are complete.
            second = int(time.time())
            await sync_to_async(redis_client().hset)(
                keys.by_second(pipeline, second // 60), f"output.out.delivered|{second}", 30
            )
            news = await socket.receive_json()
    assert (news["pipelines"], news["outputs"]) == ({}, {})
    assert news["rates"]["delivered"] in (10.0, 20.0, 30.0)
    assert [(one["pipeline"], one["rate_limit"]["waiting"]) for one in news["limits"]] == [(pipeline, 2)]
    await socket.disconnect()


@pytest.mark.parametrize("end", ["session", "account", "membership"])
async def test_a_socket_ends_with_its_session(end: str) -> None:
    workspace, _ = await sync_to_async(a_pipeline)()
    user = await sync_to_async(factories.admin_of)(workspace)
    socket = Socket(await sync_to_async(cookie_of)(user))
    await socket.connect()
    assert (await socket.receive_json())["type"] == "news"
    if end == "session":
        await Session.objects.all().adelete()
    elif end == "account":
        await User.objects.filter(pk=user.pk).aupdate(is_active=False)
    else:
        await Membership.objects.filter(user=user).adelete()
    while (answer := await socket.receive_output(30))["type"] != "websocket.close":
        pass
    assert answer["code"] == 4401
