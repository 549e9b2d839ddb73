"""Polling of a real JSON API: every kind of paging, what is new, limits and failures."""

import time
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from aiohttp import web

from backend.connectors.http import read
from backend.connectors.http.connection import HttpConnection
from backend.connectors.http.read import HttpReadBatch, HttpReadOptions
from backend.domain import json
from backend.domain.capabilities import Batch, DeliveryError
from tests.json_api import JsonApi, json_api
from tests.receiver import receiver
from tests.token_server import protected

WHOLE = {"type": "whole"}
BY_NUMBER = {"type": "incremental", "field": "n", "values": "number", "parameter": "since"}

PAGED: dict[str, dict[str, Any]] = {
    "none": {"path": "/plain"},
    "page": {
        "path": "/pages",
        "records": "data",
        "paging": {"type": "page", "size_parameter": "per_page", "size": 5},
    },
    "last page": {"path": "/pages", "records": "data", "paging": {"type": "page", "last_page": "meta.last"}},
    "offset": {"path": "/offset", "records": "data.items", "paging": {"type": "offset"}},
    "cursor": {"path": "/cursor", "records": "data", "paging": {"type": "cursor", "cursor": "next"}},
    "last record": {
        "path": "/after",
        "paging": {
            "type": "cursor",
            "cursor_in": "last_record",
            "cursor": "n",
            "cursor_parameter": "starting_after",
        },
    },
    "next link": {"path": "/links", "records": "data", "paging": {"type": "next_link", "next": "links.next"}},
    "absolute link": {
        "path": "/links?absolute=1",
        "records": "data",
        "paging": {"type": "next_link", "next": "links.next"},
    },
    "link header": {"path": "/headers", "paging": {"type": "link_header"}},
}


def numbered(numbers: Sequence[int]) -> list[bytes]:
    return [b'{"n": %d, "id": "r%d"}' % (number, number) for number in numbers]


async def batches(
    api: JsonApi, options: dict[str, Any], breakpoint: Any = None, *, kept: list[Batch] | None = None
) -> list[Batch]:
    """What one reading returns; also in ``kept``, when it fails."""
    returned = [] if kept is None else kept
    connection = HttpConnection.model_validate({"url": api.url})
    reader = HttpReadBatch(connection, HttpReadOptions.model_validate({"mode": WHOLE, "id": "id", **options}))
    await reader.open()
    try:
        async for batch in reader.read(json.loads(json.dumps(breakpoint))):
            returned.append(batch)
    finally:
        await reader.close()
    return returned


def bodies(returned: Sequence[Batch]) -> list[bytes]:
    return [record.body for batch in returned for record in batch.records]


@pytest.mark.parametrize("options", PAGED.values(), ids=PAGED.keys())
@pytest.mark.parametrize("count", [0, 1, 7, 14, 20])
async def test_every_page_is_read_once_in_order(options: dict[str, Any], count: int) -> None:
    records = numbered(range(1, count + 1))
    async with json_api(records) as api:
        whole = await batches(api, options)
        assert bodies(whole) == records
        keys = [record.key for batch in whole for record in batch.records]
        assert keys == [b"r%d" % number for number in range(1, count + 1)]
        for number, batch in enumerate(whole):
            assert bodies(await batches(api, options, batch.breakpoint)) == bodies(whole[number + 1 :])


@pytest.mark.parametrize("options", PAGED.values(), ids=PAGED.keys())
async def test_only_what_is_new_is_read_again(options: dict[str, Any]) -> None:
    options = {**options, "mode": BY_NUMBER}
    async with json_api(numbered([3, 1, 2] if "after" not in options["path"] else [1, 2, 3])) as api:
        first = await batches(api, options)
        assert len(bodies(first)) == 3
        again = await batches(api, options, first[-1].breakpoint)
        assert bodies(again) == []
        # The same largest value, a changed record with it, and larger ones.
        more = [b'{"n": 3, "id": "other"}', b'{"n": 3, "id": "r3", "changed": true}', *numbered(range(4, 15))]
        api.records += more
        last = await batches(api, options, again[-1].breakpoint)
        assert set(bodies(last)) == set(more)
        assert "since=3" in api.requests[-1] or "since=14" in api.requests[-1]
        identities = [record.identity for batch in first + last for record in batch.records]
        assert len(set(identities)) == 16


@pytest.mark.parametrize("validators", [{"etag"}, {"date"}, {"etag", "date"}])
@pytest.mark.parametrize("parameter", ["since", ""])
@pytest.mark.parametrize("kind", ["none", "last page", "cursor", "next link"])
async def test_what_has_not_changed_is_not_sent_again(kind: str, parameter: str, validators: set[str]) -> None:
    options = {**PAGED[kind], "mode": BY_NUMBER | {"parameter": parameter}}
    async with json_api(numbered([1, 2, 3]), validators=frozenset(validators)) as api:
        first = await batches(api, options)
        assert len(bodies(first)) == 3
        second = await batches(api, options, first[-1].breakpoint)  # with since=3 for the first time
        before, third = api.unchanged, await batches(api, options, second[-1].breakpoint)
        assert api.unchanged == before + 1
        assert [batch.records for batch in third] == [[]]
        assert third[-1].breakpoint == second[-1].breakpoint
        api.records += numbered([4])
        fourth = await batches(api, options, third[-1].breakpoint)
        assert bodies(fourth) == numbered([4])


@pytest.mark.parametrize("kind", ["page", "offset", "link header"])
async def test_pages_that_may_be_followed_by_others_are_always_read(kind: str) -> None:
    options = {**PAGED[kind], "mode": BY_NUMBER | {"parameter": ""}}
    async with json_api(numbered(range(1, 8)), validators=frozenset({"etag"})) as api:
        first = await batches(api, options)
        again = await batches(api, options, first[-1].breakpoint)
        assert (len(bodies(first)), bodies(again)) == (7, [])
        api.records += numbered([8])  # which leaves the first page as it was
        assert bodies(await batches(api, options, again[-1].breakpoint)) == numbered([8])
        assert api.unchanged == 0


async def test_several_pages_are_read_though_the_first_has_not_changed() -> None:
    options = {**PAGED["cursor"], "mode": BY_NUMBER | {"parameter": ""}}
    async with json_api(numbered(range(1, 10)), validators=frozenset({"etag"})) as api:
        first = await batches(api, options)
        api.records += numbered([10])
        assert bodies(await batches(api, options, first[-1].breakpoint)) == numbered([10])
        assert api.unchanged == 0


@pytest.mark.parametrize("skipped", [True, False])
async def test_all_records_are_read_again_if_that_is_wanted(skipped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"path": "/plain", "mode": {"type": "whole", "repeat_minutes": 1, "skip_unchanged": skipped}}
    async with json_api(numbered([1]), validators=frozenset({"etag"})) as api:
        first = await batches(api, options)
        began = time.time()
        monkeypatch.setattr(time, "time", lambda: began + 61)
        second = await batches(api, options, first[-1].breakpoint)
        assert bodies(second) == ([] if skipped else numbered([1]))
        monkeypatch.setattr(time, "time", lambda: began + 122)
        api.records += numbered([2])
        assert bodies(await batches(api, options, second[-1].breakpoint)) == numbered([1, 2])
        assert api.unchanged == (1 if skipped else 0)


async def test_an_answer_that_nothing_has_changed_is_an_error_where_nobody_asked() -> None:
    async with json_api() as api:
        api.answers = [lambda: web.Response(status=304)]
        with pytest.raises(DeliveryError, match="304"):
            await batches(api, {"path": "/plain"})


@pytest.mark.parametrize("etag", ["", 'W/"é"', '"a", "b"', '"' + "x" * 2000 + '"'])
async def test_an_etag_that_cannot_be_sent_is_not_kept(etag: str) -> None:
    async with json_api() as api:
        headers = {"ETag": etag, "Content-Type": "application/json"}
        api.answers = [lambda: web.Response(text="[]", headers=headers)]
        [batch] = await batches(api, {"path": "/plain", "mode": BY_NUMBER})
        assert "seen" not in batch.breakpoint


async def test_the_largest_value_counts_once_all_pages_were_read() -> None:
    """The newest come first, and the reader stops after the first page."""
    options = {**PAGED["cursor"], "mode": BY_NUMBER}
    async with json_api(numbered(range(20, 0, -1))) as api:
        first = (await batches(api, options))[0]
        rest = await batches(api, options, first.breakpoint)
        assert sorted(bodies([first, *rest])) == sorted(api.records)
        assert "since" not in api.requests[-1]
        assert bodies(await batches(api, options, rest[-1].breakpoint)) == []
        assert "since=20" in api.requests[-1]


async def test_an_api_that_limits_its_answer_is_asked_until_nothing_is_new() -> None:
    options = {"path": "/plain", "parameters": {"limit": "6"}, "mode": BY_NUMBER}
    async with json_api(numbered(range(1, 21))) as api:
        assert bodies(await batches(api, options)) == numbered(range(1, 21))
        assert api.requests[:2] == ["/plain?limit=6", "/plain?limit=6&since=6"]


async def test_without_a_parameter_older_records_are_left_out() -> None:
    mode = {"type": "incremental", "field": "at"}
    times = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z", "2025-12-31T22:00:00-03:00", None, "soon"]
    records = [json.dumps({"id": number, "at": at}) for number, at in enumerate(times)]
    async with json_api(records) as api:
        first = await batches(api, {"path": "/plain", "mode": mode})
        assert bodies(first) == records
        later = [
            json.dumps({"id": 5, "at": "2026-01-01T00:59:59Z"}),
            json.dumps({"id": 6, "at": "2026-01-01T01:00:01Z"}),
        ]
        api.records += later
        # Those whose value cannot be compared are taken each time, with the same identity.
        second = await batches(api, {"path": "/plain", "mode": mode}, first[-1].breakpoint)
        assert bodies(second) == [*records[3:], later[1]]
        identities = [record.identity for batch in first for record in batch.records]
        assert [record.identity for batch in second for record in batch.records][:2] == identities[3:]
        assert api.requests == ["/plain"] * 2


@pytest.mark.parametrize(
    ("values", "written", "largest"),
    [
        ("number", ["9", "10", 9.5, True, "x"], "10"),
        ("number", [2**64, 2**63], str(2**64)),
        ("number", ["0.10", "0.1000000000000000000001"], "0.1000000000000000000001"),
        ("text", ["b", "a", 3], "b"),
        ("timestamp", ["2026-10-25T02:30:00+02:00", "2026-10-25T01:30:00+00:00"], "2026-10-25T01:30:00%2B00:00"),
        ("timestamp", ["2026-02-28", "2026-02-28T00:00:01"], "2026-02-28T00:00:01"),
    ],
)
async def test_values_are_compared_by_what_they_are(values: str, written: list[Any], largest: str) -> None:
    mode = {"type": "incremental", "field": "v.x", "values": values, "parameter": "from", "initial": "start now"}
    records = [json.dumps({"id": number, "v": {"x": value}}) for number, value in enumerate(written)]
    options = {"path": "/links", "records": "data", "mode": mode, "paging": {"type": "next_link", "next": "no"}}
    async with json_api(records) as api:
        api.answers = [lambda: web.Response(body=b'{"data": [%s]}' % b",".join(records))] * 2
        first = await batches(api, options)
        await batches(api, options, first[-1].breakpoint)
        assert api.requests == ["/links?from=start%20now", f"/links?from={largest.replace(':', '%3A')}"]


async def test_all_records_are_read_once_or_again_as_new_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    async with json_api(numbered([1, 2])) as api:
        once = await batches(api, PAGED["cursor"])
        assert await batches(api, PAGED["cursor"], once[-1].breakpoint) == []
        options = {**PAGED["cursor"], "mode": {"type": "whole", "repeat_minutes": 10}}
        first = await batches(api, options)
        assert await batches(api, options, first[-1].breakpoint) == []
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 601)
        second = await batches(api, options, first[-1].breakpoint)
        assert bodies(second) == bodies(first)
        identities = [record.identity for batch in first + second for record in batch.records]
        assert len(set(identities)) == 4


async def test_a_long_load_is_read_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_READ_SECONDS", 0.0)
    async with json_api(numbered(range(1, 21))) as api:
        turns = [await batches(api, PAGED["cursor"])]
        while len(turns) < 3:
            turns.append(await batches(api, PAGED["cursor"], turns[-1][-1].breakpoint))
        assert [len(turn) for turn in turns] == [1, 1, 1]
        assert [body for turn in turns for body in bodies(turn)] == numbered(range(1, 21))


async def test_records_keep_the_form_they_were_written_in() -> None:
    written = b'{ "id":1e2 , "n": 12345678901234567890.10, "t": "\\u00e9" }'
    async with json_api([written]) as api:
        [record] = [record for batch in await batches(api, {"path": "/plain"}) for record in batch.records]
        assert record.body == written
        assert json.loads(record.body)["n"] == Decimal("12345678901234567890.10")


async def test_an_api_that_asks_to_wait_is_not_asked_again_before() -> None:
    waits = [time.monotonic()]

    def busy() -> web.Response:
        waits.append(time.monotonic())
        return web.Response(status=429, headers={"Retry-After": "1"})

    async with json_api(numbered([1])) as api:
        api.answers = [busy]
        assert bodies(await batches(api, {"path": "/plain"})) == numbered([1])
        assert time.monotonic() - waits[1] >= 1
        assert len(api.requests) == 2


async def test_a_long_wait_outlasts_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    async with json_api(numbered(range(1, 21))) as api:
        options = {**PAGED["cursor"], "mode": BY_NUMBER}
        kept: list[Batch] = []
        first = (await batches(api, options))[0]
        api.answers = [lambda: web.Response(status=503, headers={"Retry-After": "300"})]
        with pytest.raises(DeliveryError) as failed:
            await batches(api, options, first.breakpoint, kept=kept)
        assert (failed.value.reason, failed.value.retry_after) == ("http_503", 300)
        [pause] = kept
        asked = len(api.requests)
        assert await batches(api, options, pause.breakpoint) == []
        assert len(api.requests) == asked
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 301)
        assert bodies(await batches(api, options, pause.breakpoint)) == numbered(range(8, 21))


async def test_a_failure_that_passes_is_retried_and_one_that_stays_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_FIRST_WAIT", 0.001)
    async with json_api(numbered([1])) as api:
        api.answers = [lambda: web.Response(status=500)] * 3
        assert bodies(await batches(api, {"path": "/plain"})) == numbered([1])
        api.answers = [lambda: web.Response(status=500, text="broken")] * 4
        with pytest.raises(DeliveryError, match="API answered 500: broken") as failed:
            await batches(api, {"path": "/plain"})
        assert failed.value.retryable
        assert api.answers == []


@pytest.mark.parametrize(
    ("options", "answer", "named"),
    [
        ({}, lambda: web.Response(status=404, text="gone"), "API answered 404: gone"),
        ({}, lambda: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), "API answered 302"),
        ({}, lambda: web.Response(text="<html>"), "not JSON"),
        ({}, lambda: web.Response(text='[{"n": 1}'), "not JSON"),
        ({}, lambda: web.Response(text='{"n": 1}'), "no list of records in the whole answer"),
        ({"records": "data.items"}, lambda: web.Response(text='{"data": [1]}'), "no list of records at data.items"),
        ({"page_bytes": 1024}, lambda: web.Response(text=f'["{"x" * 1024}"]'), "longer than 1,024 bytes"),
        ({"page_bytes": 2 * 2**20}, lambda: web.Response(text=f'["{"x" * 3 * 2**20}"]'), "longer than 2,097,152"),
        (
            {"records": "data", "paging": {"type": "next_link", "next": "next"}},
            lambda: web.json_response({"data": [], "next": "https://evil.example.com/links"}),
            "at another address",
        ),
        (
            {"records": "data", "paging": {"type": "next_link", "next": "next"}},
            lambda: web.json_response({"data": [], "next": "//evil.example.com/links"}),
            "at another address",
        ),
        (
            {"paging": {"type": "link_header"}},
            lambda: web.Response(text="[]", headers={"Link": "<http://127.0.0.1:1/x>; rel=next"}),
            "at another address",
        ),
        (
            {"records": "data", "paging": {"type": "cursor", "cursor": "next"}},
            lambda: web.json_response({"data": [], "next": {}}),
            "is an object or a list",
        ),
    ],
)
async def test_an_answer_that_is_no_page_is_told(options: dict[str, Any], answer: Any, named: str) -> None:
    async with json_api() as api:
        api.answers = [answer]
        with pytest.raises(DeliveryError, match=named) as failed:
            await batches(api, {"path": "/plain", **options})
        assert len(api.requests) == 1
        assert not failed.value.retryable


@pytest.mark.parametrize("text", ["", "null", "[]", '{"data": null}', '{"data": []}'])
async def test_an_answer_may_have_no_records(text: str) -> None:
    async with json_api() as api:
        api.answers = [lambda: web.Response(text=text)]
        options = {"path": "/plain", "records": "data" if "data" in text else None}
        assert bodies(await batches(api, options)) == []


async def test_an_api_that_ignores_the_paging_is_not_read_forever() -> None:
    async with json_api(numbered([1, 2])) as api:
        with pytest.raises(DeliveryError, match="the same page again"):
            await batches(api, {"path": "/plain", "paging": {"type": "page"}})
        assert len(api.requests) == 2


async def test_a_page_larger_than_what_other_answers_may_be_is_read() -> None:
    records = [json.dumps({"id": number, "text": "ü" * 450_000}) for number in range(3)]
    async with json_api(records) as api:
        assert bodies(await batches(api, {"path": "/plain"})) == records


async def test_requests_are_spread_out() -> None:
    async with json_api(numbered(range(1, 15))) as api:
        begin = time.monotonic()
        await batches(api, {**PAGED["offset"], "pages_per_second": 10})
        assert len(api.requests) == 3
        assert time.monotonic() - begin >= 0.2


async def test_parameters_and_headers_are_sent() -> None:
    headers: list[dict[bytes, bytes]] = []
    queries: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        headers.append(dict(request.raw_headers))
        queries.append(request.raw_path)
        return web.json_response([])

    async with receiver(answer) as running:
        options = {
            "path": "/a?fixed=1",
            "parameters": {"q": "São & Paulo=1", "status[]": "x"},
            "headers": {"X-Tenant": "São"},
        }
        await batches(JsonApi(running.url), options)
    assert queries == ["/a?fixed=1&q=S%C3%A3o%20%26%20Paulo%3D1&status%5B%5D=x"]
    assert headers[0][b"Accept"] == b"application/json"
    assert headers[0][b"X-Tenant"] == "São".encode()


async def test_pages_are_read_with_a_token() -> None:
    api = JsonApi(records=numbered(range(1, 21)))
    async with protected(api.answer) as (issuer, running):
        connection = {"url": running.url, "authentication": issuer.authentication()}
        options = HttpReadOptions.model_validate({**PAGED["link header"], "mode": WHOLE, "id": "id"})
        reader = HttpReadBatch(HttpConnection.model_validate(connection), options)
        await reader.open()
        returned = []
        async for batch in reader.read(None):
            returned.append(batch)
            issuer.valid.clear()  # each page needs a new token
        await reader.close()
        assert bodies(returned) == api.records
        assert len(issuer.tokens) == 3
