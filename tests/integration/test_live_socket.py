import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.contrib.sessions.models import Session
from django.test import Client

from backend.apps.monitoring import consumers
from backend.apps.workspaces.models import User, Workspace
from backend.config.asgi import application
from tests import factories

pytestmark = pytest.mark.django_db(transaction=True)


def cookie_of(user: User) -> bytes:
    client = Client()
    client.force_login(user)
    return f"sessionid={client.cookies['sessionid'].value}".encode()


class Socket(ApplicationCommunicator):
    """A browser's end."""

    def __init__(self, cookie: bytes = b"") -> None:
        headers = [(b"host", b"localhost"), (b"origin", b"http://localhost"), (b"cookie", cookie)]
        scope = {"type": "websocket", "path": "/ws/live/", "headers": headers, "subprotocols": []}
        super().__init__(application, scope)

    async def connect(self) -> None:
        await self.send_input({"type": "websocket.connect"})
        assert (await self.receive_output(30))["type"] == "websocket.accept"

    async def send_json(self, value: object) -> None:
        await self.send_input({"type": "websocket.receive", "text": json.dumps(value)})

    async def receive_json(self) -> dict[str, Any]:
        received: dict[str, Any] = json.loads((await self.receive_output(30))["text"])
        return received

    async def disconnect(self) -> None:
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(30)


def a_pipeline() -> tuple[Workspace, str]:
    workspace = factories.make_workspace()
    return workspace, str(factories.make_pipeline(workspace).pk)


async def next_counts(socket: Socket, pipeline: str) -> dict[str, Any]:
    """The first counts after a choice of pipelines may still be of the choice before."""
    await socket.send_json({"type": "watch", "pipelines": [pipeline, "nonsense"]})
    await socket.receive_json()
    counts: dict[str, Any] = await socket.receive_json()
    return counts


async def test_a_stranger_is_told_so_and_gets_nothing() -> None:
    socket = Socket()
    await socket.connect()
    assert (await socket.receive_output(30)) == {"type": "websocket.close", "code": 4401}


async def test_pipelines_of_other_workspaces_do_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "_INTERVAL", 0.05)
    workspace, mine = await sync_to_async(a_pipeline)()
    _, foreign = await sync_to_async(a_pipeline)()
    user = await sync_to_async(factories.admin_of)(workspace)
    socket = Socket(await sync_to_async(cookie_of)(user))
    await socket.connect()
    assert foreign not in (await next_counts(socket, foreign))["pipelines"]
    await socket.send_json({"pipelines": [mine]})
    while mine not in (await socket.receive_json())["pipelines"]:
        pass
    await socket.disconnect()


@pytest.mark.parametrize("end", ["session", "account"])
async def test_a_socket_ends_with_its_session(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr(consumers, "_INTERVAL", 0.05)
    monkeypatch.setattr(consumers, "_SESSION_SECONDS", 0.1)
    user = await sync_to_async(factories.make_user)()
    socket = Socket(await sync_to_async(cookie_of)(user))
    await socket.connect()
    assert (await socket.receive_json())["type"] == "counts"
    if end == "session":
        await Session.objects.all().adelete()
    else:
        await User.objects.filter(pk=user.pk).aupdate(is_active=False)
    while (answer := await socket.receive_output(30))["type"] != "websocket.close":
        pass
    assert answer["code"] == 4401
