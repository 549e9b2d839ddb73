"""A JSON API over a list of records, with every kind of paging that APIs have, each at a path of its own."""

import base64
import json
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from aiohttp import web

from tests.receiver import receiver


@dataclass
class JsonApi:
    """``records`` are sent as they are written. ``answers`` are given first, one for each request, before any page;
    ``since`` tells which records a request with ``since=…`` gets. ``validators`` are those of RFC 9110 that the answers
    have, and ``unchanged`` counts the requests that were answered by them."""

    url: str = ""
    records: list[bytes] = field(default_factory=list)
    size: int = 7
    requests: list[str] = field(default_factory=list)
    answers: list[Callable[[], web.Response]] = field(default_factory=list)
    validators: frozenset[str] = frozenset()
    unchanged: int = 0
    since: Callable[[Any, str], bool] = lambda record, value: record.get("n", 0) >= int(value)

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append(request.path_qs)
        if self.answers:
            return self.answers.pop(0)()
        query = request.query
        chosen = self.records
        if "since" in query:
            chosen = [record for record in chosen if self.since(json.loads(record), query["since"])]
        page: Callable[[web.Request, list[bytes]], web.Response] = getattr(self, request.path.strip("/"))
        return self.conditional(request, page(request, chosen))

    def conditional(self, request: web.Request, answer: web.Response) -> web.Response:
        """Whatever has another body has another date, too."""
        assert isinstance(answer.body, bytes)
        number = zlib.crc32(answer.body)
        known = []
        if "etag" in self.validators:
            answer.headers["ETag"] = f'W/"{number}"'
            known.append(request.headers.get("If-None-Match") == answer.headers["ETag"])
        if "date" in self.validators:
            answer.headers["Last-Modified"] = format_datetime(datetime.fromtimestamp(number // 4, UTC), usegmt=True)
            known.append(request.headers.get("If-Modified-Since") == answer.headers["Last-Modified"])
        if not known or not all(known):
            return answer
        self.unchanged += 1
        return web.Response(status=304)

    def plain(self, request: web.Request, chosen: list[bytes]) -> web.Response:
        limit = int(request.query.get("limit", len(chosen)))
        return _json(b"[%s]" % b", ".join(chosen[:limit]))

    def pages(self, request: web.Request, chosen: list[bytes]) -> web.Response:
        number, size = int(request.query["page"]), int(request.query.get("per_page", self.size))
        last = -(-len(chosen) // size)
        meta = b'{"last": %d}' % last
        return _json(b'{"meta": %s, "data": [%s]}' % (meta, b",".join(chosen[(number - 1) * size : number * size])))

    def offset(self, request: web.Request, chosen: list[bytes]) -> web.Response:
        start, size = int(request.query["offset"]), min(self.size, int(request.query["limit"]))
        return _json(b'{"data": {"items": [%s]}}' % b",".join(chosen[start : start + size]))

    def cursor(self, request: web.Request, chosen: list[bytes]) -> web.Response:
        start = int(base64.b64decode(request.query.get("cursor", "MA==")))
        following = base64.b64encode(b"%d" % (start + self.size)).decode() if start + self.size < len(chosen) else None
        items = b",".join(chosen[start : start + self.size])
        return _json(b'{"next": %s, "data": [%s]}' % (json.dumps(following).encode(), items))

    def after(self, request: web.Request, chosen: list[bytes]) -> web.Response:
        last = int(request.query.get("starting_after", 0))
        return _json(b"[%s]" % b",".join([r for r in chosen if json.loads(r)["n"] > last][: self.size]))

    def links(self, request: web.Request, chosen: list[bytes]) -> web.Response:
        start = int(request.query.get("from", 0))
        more = start + self.size < len(chosen)
        following = str(request.rel_url.update_query({"from": start + self.size})) if more else ""
        if request.query.get("absolute"):
            following = f"{self.url.rstrip('/')}{following}" if following else ""
        items = b",".join(chosen[start : start + self.size])
        return _json(b'{"links": {"next": %s}, "data": [%s]}' % (json.dumps(following).encode(), items))

    def headers(self, request: web.Request, chosen: list[bytes]) -> web.Response:
        start = int(request.query.get("from", 0))
        answer = _json(b"[%s]" % b",".join(chosen[start : start + self.size]))
        answer.headers.add("Link", '</headers?from=0>; rel="first", </x,y;z>; title="a, <b>; rel=next"; rel=prev')
        if start + self.size < len(chosen):
            answer.headers.add(
                "Link", f'<{request.rel_url.update_query({"from": start + self.size})}>; title="n"; rel="next last"'
            )
        return answer


@asynccontextmanager
async def json_api(records: list[bytes] | None = None, **fields: Any) -> AsyncIterator[JsonApi]:
    api = JsonApi(records=list(records or ()), **fields)
    async with receiver(api.answer) as running:
        api.url = running.url
        yield api


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")
