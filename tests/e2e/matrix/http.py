"""HTTP receivers and JSON APIs."""

from collections.abc import Sequence

from aiohttp import web

from tests.e2e.matrix.ends import Inlet, Outlet, Record, bodies_of, parsed
from tests.receiver import receiver_in_thread


class _Receiver:
    """A server that runs until ``close``."""

    def __init__(self) -> None:
        super().__init__()
        self._receiver = receiver_in_thread(self.answer)
        self._running = self._receiver.__enter__()
        self.connection = {"url": self._running.url}

    async def answer(self, request: web.Request) -> web.Response:
        raise NotImplementedError

    def close(self) -> None:
        self._receiver.__exit__(None, None, None)


class HttpOutlet(_Receiver, Outlet):
    type = "http"

    def __init__(self) -> None:
        super().__init__()
        self.options = {}

    async def answer(self, request: web.Request) -> web.Response:
        return web.Response()

    def read(self) -> list[Record]:
        return [parsed(body) for body in self._running.bodies]


class HttpInlet(_Receiver, Inlet):
    """An API with two records on a page."""

    type = "http"

    def __init__(self) -> None:
        super().__init__()
        paging = {"type": "offset", "offset_parameter": "offset"}
        self.options = {"id": "id", "mode": {"type": "whole"}, "paging": paging}
        self._bodies: list[bytes] = []

    def write(self, records: Sequence[Record]) -> None:
        self._bodies += bodies_of(records)

    async def answer(self, request: web.Request) -> web.Response:
        start = int(request.query.get("offset", 0))
        page = b", ".join(self._bodies[start : start + 2])
        return web.Response(body=b"[%s]" % page, content_type="application/json")
