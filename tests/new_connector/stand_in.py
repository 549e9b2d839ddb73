"""A small system with an HTTP API: queues of records, files, answers, and registrations.

New connectors work with it until they have a system of their own.
"""

import asyncio
import socket
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

PASSWORD = "planted-password-of-the-stand-in"
_REQUEST_BYTES = 64 * 1024 * 1024


class StandIn:
    """What it holds. Files lie in a folder, so that they take no memory of the test's process."""

    def __init__(self, folder: Path) -> None:
        self.connection: dict[str, Any] = {}
        self.queues: dict[str, list[str]] = {}
        self.acknowledged: dict[str, int] = {}
        self.questions: list[Any] = []
        self.registrations: dict[str, str] = {}
        self._folder = folder
        self._uploads: dict[str, str] = {}
        self._committed: set[str] = set()

    def files(self) -> dict[str, bytes]:
        visible = self._folder / "visible"
        return {str(file.relative_to(visible)): file.read_bytes() for file in visible.rglob("*") if file.is_file()}

    def application(self) -> web.Application:
        application = web.Application(client_max_size=_REQUEST_BYTES, middlewares=[_with_password])
        application.add_routes(
            [
                web.get("/queues", self._list),
                web.post("/queues/{queue}", self._add),
                web.get("/queues/{queue}", self._read),
                web.put("/queues/{queue}/acknowledged", self._acknowledge),
                web.post("/questions", self._answer),
                web.put("/registrations/{name}", self._register),
                web.delete("/registrations/{name}", self._unregister),
                web.post("/uploads", self._begin),
                web.put("/uploads/{id}/{number}", self._write),
                web.post("/uploads/{id}", self._commit),
                web.delete("/uploads/{id}", self._abort),
            ]
        )
        return application

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response(list(self.queues))

    async def _add(self, request: web.Request) -> web.Response:
        records = self.queues.setdefault(request.match_info["queue"], [])
        first = len(records) + 1
        records += await request.json()
        return web.json_response(list(range(first, len(records) + 1)))

    async def _read(self, request: web.Request) -> web.Response:
        """The records after a number, and after what is acknowledged; waits for some if it is asked to."""
        queue, query = request.match_info["queue"], request.query
        until = asyncio.get_running_loop().time() + int(query.get("wait", 0))
        while True:
            records = self.queues.get(queue, [])
            after = max(int(query["after"]), self.acknowledged.get(queue, 0))
            if len(records) > after or asyncio.get_running_loop().time() >= until:
                break
            await asyncio.sleep(0.02)
        rows = [{"number": number, "body": body} for number, body in enumerate(records, 1) if number > after]
        return web.json_response(rows[: int(query["limit"])])

    async def _acknowledge(self, request: web.Request) -> web.Response:
        self.acknowledged[request.match_info["queue"]] = await request.json()
        return web.Response(status=204)

    async def _answer(self, request: web.Request) -> web.Response:
        """The question itself, as it was sent."""
        question = await request.read()
        self.questions.append(question)
        return web.Response(body=question, content_type="application/json")

    async def _register(self, request: web.Request) -> web.Response:
        self.registrations[request.match_info["name"]] = await request.json()
        return web.Response(status=204)

    async def _unregister(self, request: web.Request) -> web.Response:
        self.registrations.pop(request.match_info["name"], None)
        return web.Response(status=204)

    async def _begin(self, request: web.Request) -> web.Response:
        upload = uuid.uuid4().hex
        self._uploads[upload] = await request.json()
        (self._folder / upload).mkdir()
        return web.json_response(upload)

    async def _write(self, request: web.Request) -> web.Response:
        upload = self._upload(request)
        with (self._folder / upload / request.match_info["number"].zfill(6)).open("wb") as file:
            async for chunk in request.content.iter_any():
                file.write(chunk)
        return web.Response(status=204)

    async def _commit(self, request: web.Request) -> web.Response:
        if request.match_info["id"] not in self._committed:
            upload = self._upload(request)
            target = self._folder / "visible" / self._uploads.pop(upload)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                for part in sorted((self._folder / upload).iterdir()):
                    file.write(part.read_bytes())
            self._committed.add(upload)
        return web.Response(status=204)

    async def _abort(self, request: web.Request) -> web.Response:
        self._uploads.pop(request.match_info["id"], None)
        return web.Response(status=204)

    def _upload(self, request: web.Request) -> str:
        upload = request.match_info["id"]
        if upload not in self._uploads:
            raise web.HTTPNotFound
        return upload


@web.middleware
async def _with_password(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.headers.get("Authorization") != f"Bearer {PASSWORD}":
        raise web.HTTPUnauthorized
    return await handler(request)


@asynccontextmanager
async def stand_in(*, hangs: bool = False) -> AsyncIterator[StandIn]:
    """One that works, or one that accepts connections and never answers."""
    with tempfile.TemporaryDirectory() as folder:
        system = StandIn(Path(folder))
        async with _silent_port() if hangs else _served(system.application()) as port:
            system.connection = {"url": f"http://127.0.0.1:{port}", "password": PASSWORD}
            yield system


@asynccontextmanager
async def _silent_port() -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@asynccontextmanager
async def _served(application: web.Application) -> AsyncIterator[int]:
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def unreachable() -> dict[str, Any]:
    """A connection to nobody on this machine."""
    return {"url": "http://127.0.0.1:1", "password": PASSWORD}
