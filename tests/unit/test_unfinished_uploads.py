"""Which uploads of an object store nobody has finished, against stand-ins that list them in pages."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer

from backend.connectors.gcs import GcsConnection, GcsStore
from backend.connectors.parts.files.store import FileStore, opened_store
from backend.connectors.s3 import S3Connection, S3Store

NUMBERS = ["0" * 32, "1" * 32]
MOMENT = 1_767_225_600_000_000
"""The beginning of 2026."""


@asynccontextmanager
async def served(
    answer: Callable[[web.Request], Awaitable[web.Response]], store: Callable[[int], FileStore]
) -> AsyncIterator[FileStore]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app, host="127.0.0.1") as server:
        assert server.port is not None
        async with opened_store(store(server.port)) as opened:
            yield opened


def s3_store(port: int) -> FileStore:
    connection = {"bucket": "bucket", "endpoint": f"http://127.0.0.1:{port}", "access": {"type": "none"}}
    return S3Store(S3Connection.model_validate(connection))


def gcs_store(port: int) -> FileStore:
    access = {"type": "emulator", "endpoint": f"127.0.0.1:{port}"}
    return GcsStore(GcsConnection.model_validate({"bucket": "bucket", "access": access}))


async def test_s3_lists_only_what_may_be_ours_in_our_folder() -> None:
    names = ["out/1.csv", "out/theirs.bin", "out/2.csv", "outside/3.csv"]
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.query["prefix"])
        first = "key-marker" not in request.query
        shown = names[:2] if first else names[2:]
        if not first:
            assert (request.query["key-marker"], request.query["upload-id-marker"]) == (names[1], "u")
        uploads = "".join(
            f"<Upload><Key>{name}</Key><UploadId>u</UploadId><Initiated>2026-01-01T00:00:00.000Z</Initiated></Upload>"
            for name in shown
        )
        more = f"<NextKeyMarker>{names[1]}</NextKeyMarker><NextUploadIdMarker>u</NextUploadIdMarker>" if first else ""
        text = f"<IsTruncated>{str(first).lower()}</IsTruncated>{more}{uploads}"
        return web.Response(text=f"<ListMultipartUploadsResult>{text}</ListMultipartUploadsResult>")

    async with served(answer, s3_store) as store:
        found = [upload async for upload in store.uploads("out/", lambda name: name.endswith(".csv"))]
        assert found == [(MOMENT, {"name": name, "id": "u"}) for name in ("out/1.csv", "out/2.csv")]
        assert asked == ["out/", "out/"]
        # In the whole bucket they may be anybody's.
        assert [upload async for upload in store.uploads("", lambda name: True)] == []
        assert len(asked) == 2


async def test_google_has_an_upload_for_each_folder_of_unfinished_parts() -> None:
    objects = {
        f".headrace-unfinished/{NUMBERS[0]}/0-00000": "2025-12-31T00:00:00Z",
        f".headrace-unfinished/{NUMBERS[0]}/0-00001": "2026-01-01T00:00:00Z",
        f".headrace-unfinished/{NUMBERS[1]}/0-00000": "2026-01-01T00:00:00Z",
        ".headrace-unfinished/theirs/0-00000": "2026-01-01T00:00:00Z",
    }
    removed: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        if request.method == "DELETE":
            removed.append(request.path.partition("/o/")[2])
            return web.Response(status=204)
        stored = {"size": "0", "generation": "1"}
        items = [
            {"name": name, "updated": updated, **stored}
            for name, updated in objects.items()
            if name.startswith(request.query["prefix"])
        ]
        return web.json_response({"items": items})

    async with served(answer, gcs_store) as store:
        found = [upload async for upload in store.uploads("out/", lambda name: False)]
        assert found == [(MOMENT, {"number": number}) for number in NUMBERS]
        await store.abort(found[0][1])
    assert removed == [f".headrace-unfinished/{NUMBERS[0]}/0-0000{number}" for number in (1, 0)]
