import os
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from backend.network import http_client
from backend.network.http_client import HttpClient, HttpError
from backend.network.outbound import OutboundPolicy
from tests.receiver import receiver_in_thread


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    started = HttpClient()
    yield started
    await started.close()


async def closes(_: web.Request) -> web.Response:
    """Each request needs a connection of its own."""
    answer = web.Response(text="taken")
    answer.force_close()
    return answer


async def test_an_address_is_checked_after_its_name_was_resolved(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver_in_thread(closes) as inbox:
        url = inbox.url.replace("127.0.0.1", "localhost")
        assert (await client.request("POST", url, [], b"{}")).body == b"taken"
        monkeypatch.setattr(http_client, "outbound_policy", OutboundPolicy)
        with pytest.raises(HttpError, match="HEADRACE_OUTBOUND_ALLOW") as refused:
            await client.request("POST", url, [], b"{}")
        assert refused.value.kind == "forbidden"
        assert len(inbox.bodies) == 1


async def test_connections_leave_no_file_open(client: HttpClient) -> None:
    with receiver_in_thread(closes) as inbox:
        await client.request("POST", inbox.url, [], b"{}")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            await client.request("POST", inbox.url, [], b"{}")
        assert len(os.listdir("/proc/self/fd")) < before + 10


async def test_no_header_of_one_request_is_sent_with_the_next(client: HttpClient) -> None:
    with receiver_in_thread(closes) as inbox:
        await client.request("POST", inbox.url, ["Authorization: Bearer planted-token", "X-First: 1"], b"{}")
        await client.request("GET", inbox.url, [])
        assert inbox.headers[0]["Authorization"] == "Bearer planted-token"
        assert not {"Authorization", "X-First"} & inbox.headers[1].keys()
