import asyncio
import contextlib
import gzip
import hashlib
import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import brotli  # type: ignore[import-untyped]
import pytest
import redis
from confluent_kafka import Consumer, TopicPartition

from backend.domain import routing
from backend.domain.pipeline import PipelineConfig, PipelineSnapshot
from backend.manager_api import snapshot as stored
from backend.runtime.health import http_ready
from tests.http_clients import PostBy, by_curl, by_go, by_java
from tests.infra import KAFKA, REDIS_URL, VAR
from tests.ports import free_ports
from tests.waiting import LIMIT_SECONDS, start_of, wait_for_processes, wait_until

CONNECTOR = "0198a7e5-0000-7000-8000-000000000000"
KEY = "hr_test-key"
WORKSPACE = uuid.uuid4()


def publish(**changes: Any) -> str:
    """Puts a pipeline into the snapshot in Redis, which the ingest starts from."""
    pipeline_id = uuid.uuid4()
    config = {"outputs": [{"name": "out", "connector": CONNECTOR}], **changes.pop("config", {})}
    fields = {"workspace_id": WORKSPACE, "version": 7, "accepting": True} | changes
    snapshot = PipelineSnapshot(id=pipeline_id, config=PipelineConfig.model_validate(config), **fields)
    redis.from_url(REDIS_URL).hset(stored.PIPELINES, str(pipeline_id), stored.dump_pipeline(snapshot))
    return str(pipeline_id)


PIPELINES: dict[str, str] = {}
METRICS: dict[str, int] = {}


@pytest.fixture(scope="module")
def ingest(pipeline_topics: None, empty_configuration: None) -> Iterator[str]:
    key = stored.IngestKey(hashlib.sha256(KEY.encode()).hexdigest(), WORKSPACE, 0)
    redis.from_url(REDIS_URL).hset(stored.INGEST_KEYS, key.hash, key.to_json())
    PIPELINES.update(
        plain=publish(),
        transformed=publish(config={"transforms": [{"type": "set", "path": "a", "value": 1}]}),
        keyed=publish(config={"input": {"type": "http", "ordering_key": "order.id"}}),
        indexed=publish(config={"index": [{"name": "text", "path": "text"}]}),
        paused=publish(accepting=False),
        foreign=publish(workspace_id=uuid.uuid4()),
    )
    port, METRICS["port"] = free_ports(2)
    environment = os.environ | {"HEADRACE_REDIS_URL": REDIS_URL, "HEADRACE_METRICS_PORT": str(METRICS["port"])}
    app = "tests.integration.data_plane.ingest_process:app"
    command = [sys.executable, "-m", "uvicorn", app, "--port", str(port), "--no-access-log"]
    path = VAR / "ingest.log"
    with path.open("wb") as log:
        process = subprocess.Popen([*command, "--loop", "uvloop"], env=environment, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    wait_for_processes([start_of("ingest", lambda: http_ready(f"{url}/health/ready"), process, path)])
    yield url
    process.send_signal(signal.SIGTERM)
    process.wait(LIMIT_SECONDS)


async def post(url: str, pipeline: str, body: bytes, **headers: str) -> tuple[int, dict[str, Any], str]:
    sent = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"} | headers
    sent = {name: value for name, value in sent.items() if value}
    skip = [] if "Content-Type" in sent else ["Content-Type"]
    async with (
        aiohttp.ClientSession(skip_auto_headers=skip) as session,
        session.post(f"{url}/v1/pipelines/{pipeline}/messages", data=io.BytesIO(body), headers=sent) as answer,
    ):
        return answer.status, await answer.json(content_type=None), answer.headers["Content-Type"]


def records(topic: str, ids: list[str]) -> dict[str, Any]:
    """The records with these message ids, once all have been found."""
    consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": str(uuid.uuid4())})
    consumer.assign([TopicPartition(topic, 0, 0)])
    by_id: dict[str, Any] = {}

    def all_there() -> bool:
        record = consumer.poll(1)
        if record is not None and record.error() is None:
            headers: Any = dict(record.headers() or [])
            if "message-id" in headers:  # other tests write to the topic, too
                by_id[headers["message-id"].decode()] = record
        return set(ids) <= set(by_id)

    wait_until(all_there, interval=0)
    consumer.close()
    return {message_id: by_id[message_id] for message_id in ids}


async def test_neighbours_3_an_index_that_is_too_large_is_refused_and_nobody_else_notices(ingest: str) -> None:
    status, problem, _ = await post(ingest, PIPELINES["indexed"], json.dumps({"text": "x" * 100_000}).encode())
    assert (status, problem["title"]) == (413, "Too large")
    assert "Message 1: " in problem["detail"]
    assert "65,536 bytes" in problem["detail"]
    assert (await post(ingest, PIPELINES["plain"], b"{}"))[0] == 202
    assert (await post(ingest, PIPELINES["indexed"], b'{"text": "x"}'))[0] == 202


async def test_a_long_ordering_key_is_replaced_with_its_hash(ingest: str) -> None:
    body = json.dumps({"order": {"id": "x" * 100_000}}).encode()
    ids = [(await post(ingest, PIPELINES["keyed"], body))[1]["message_ids"][0] for _ in range(2)]
    keys = {record.key() for record in records(routing.INPUT, ids).values()}
    assert len(keys) == 1
    assert len(keys.pop()) == 64


async def test_a_message_is_in_kafka_with_its_headers_when_202_is_answered(ingest: str) -> None:
    body = b'{"a": 1.10}'
    status, answer, _ = await post(ingest, PIPELINES["plain"], body, traceparent="00-abc")
    assert status == 202
    [message_id] = answer["message_ids"]
    record = records(routing.INPUT, [message_id])[message_id]
    headers = {name: value.decode() for name, value in record.headers()}
    assert record.value() == body
    assert record.key() == message_id.encode()
    assert headers["pipeline"] == PIPELINES["plain"]
    assert headers["version"] == "7"
    assert headers["content-type"] == "application/json"
    assert headers["routing-slip"] == "firehose_adapted"
    assert headers["traceparent"] == "00-abc"


async def test_pipelines_with_transforms_enter_at_their_own_topic(ingest: str) -> None:
    _, answer, _ = await post(ingest, PIPELINES["transformed"], b"{}")
    assert records(routing.TRANSFORMER, answer["message_ids"])


async def test_the_ordering_key_becomes_the_records_key(ingest: str) -> None:
    _, answer, _ = await post(ingest, PIPELINES["keyed"], b'{"order": {"id": 42}}')
    [record] = records(routing.INPUT, answer["message_ids"]).values()
    assert record.key() == b"42"


async def test_a_batch_of_lines_is_accepted_whole_or_not_at_all(ingest: str) -> None:
    ndjson = {"Content-Type": "application/x-ndjson"}
    status, answer, _ = await post(ingest, PIPELINES["plain"], b'{"n":1}\n\n{"n":2}\n', **ndjson)
    assert status == 202
    bodies = [json.loads(r.value())["n"] for r in records(routing.INPUT, answer["message_ids"]).values()]
    assert bodies == [1, 2]
    status, answer, kind = await post(ingest, PIPELINES["plain"], b'{"n":3}\n{"n":\n', **ndjson)
    assert (status, kind) == (400, "application/problem+json")
    assert answer["detail"].startswith("Line 2 is not JSON")


@pytest.mark.parametrize(
    ("pipeline", "body", "headers", "status"),
    [
        ("plain", b"{}", {"Authorization": ""}, 401),
        ("plain", b"{}", {"Authorization": "Bearer wrong"}, 401),
        ("plain", b"{}", {"Authorization": "Basic abc"}, 401),
        ("unknown", b"{}", {}, 404),
        ("foreign", b"{}", {}, 404),
        ("paused", b"{}", {}, 503),
        ("plain", b"{}", {"Content-Type": ""}, 415),
        ("plain", b"{}", {"Content-Type": "text/é"}, 400),
        ("plain", b"{}", {"Content-Type": "text/" + "a" * 1024}, 400),
        ("plain", b"{broken", {}, 400),
        ("plain", b"", {}, 400),
        ("plain", b"\n \n", {"Content-Type": "application/x-ndjson"}, 400),
        ("plain", b"x" * 1024 * 1024, {"Content-Type": "text/plain"}, 413),
        ("plain", b"x" * (1024 * 1024 - 1), {"Content-Type": "text/plain"}, 202),
        ("plain", b"x" * 1024 * 1024, {"Content-Type": ""}, 415),
        ("plain", b"{}", {"Content-Type": "", "Authorization": ""}, 415),
        ("plain", b"1\n" * 200_000, {"Content-Type": "application/x-ndjson"}, 413),
        ("plain", b"\xff\x00 not json", {"Content-Type": "application/octet-stream"}, 202),
    ],
)
async def test_answers(ingest: str, pipeline: str, body: bytes, headers: dict[str, str], status: int) -> None:
    got, answer, kind = await post(ingest, PIPELINES.get(pipeline, pipeline), body, **headers)
    assert got == status
    if status != 202:
        assert kind == "application/problem+json"
        assert answer["detail"].endswith(".")


async def test_a_body_without_a_length_is_cut_off_at_the_limit(ingest: str) -> None:
    async def chunks() -> Any:
        for _ in range(20):
            yield b"x" * 100_000

    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "text/plain"}
    url = f"{ingest}/v1/pipelines/{PIPELINES['plain']}/messages"
    async with aiohttp.ClientSession() as session, session.post(url, data=chunks(), headers=headers) as answer:
        assert answer.status == 413


@pytest.mark.parametrize(
    ("size", "headers", "status"),
    [
        (8 * 1024 * 1024, {}, 413),
        (8 * 1024 * 1024, {"Connection": "close"}, 413),
        (900_000, {"Connection": "close", "Authorization": "Bearer wrong"}, 401),
        (900_000, {"Connection": "close", "Content-Type": ""}, 415),
    ],
)
def test_a_client_that_sends_everything_first_reads_the_answer(
    ingest: str, size: int, headers: dict[str, str], status: int
) -> None:
    host, port = ingest.removeprefix("http://").split(":")
    sent = {"Authorization": f"Bearer {KEY}", "Content-Type": "text/plain"} | headers
    for _ in range(5):
        connection = http.client.HTTPConnection(host, int(port), timeout=LIMIT_SECONDS)
        connection.request("POST", f"/v1/pipelines/{PIPELINES['plain']}/messages", b"x" * size, sent)
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["status"]) == (status, status)
        connection.close()


@pytest.mark.parametrize("post_by", [by_curl, by_go, by_java])
@pytest.mark.parametrize(("key", "size", "status"), [(KEY, 8 * 1024 * 1024, 413), ("wrong", 900_000, 401)])
def test_neighbours_8_clients_of_other_languages_read_the_answer(
    ingest: str, post_by: PostBy, key: str, size: int, status: int
) -> None:
    assert post_by(f"{ingest}/v1/pipelines/{PIPELINES['plain']}/messages", key, size) == status


def test_a_body_without_end_is_not_read_for_ever(ingest: str) -> None:
    host, port = ingest.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=LIMIT_SECONDS) as client:
        head = f"POST /v1/pipelines/{PIPELINES['plain']}/messages HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
        client.sendall(f"{head}Authorization: Bearer {KEY}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        with contextlib.suppress(ConnectionError):
            for _ in range(4096):
                client.sendall(chunk)
        with contextlib.suppress(ConnectionError):
            assert client.recv(100).startswith(b"HTTP/1.1 413")
            while client.recv(65536):
                pass


@pytest.mark.parametrize(("coding", "compress"), [("gzip", gzip.compress), ("br", brotli.compress)])
async def test_neighbours_8_what_a_client_has_compressed_is_stored_unpacked(
    ingest: str, coding: str, compress: Callable[[bytes], bytes]
) -> None:
    compressed = {"Content-Encoding": coding}
    status, answer, _ = await post(ingest, PIPELINES["plain"], compress(b'{"a": 1}'), **compressed)
    assert status == 202
    [record] = records(routing.INPUT, answer["message_ids"]).values()
    assert record.value() == b'{"a": 1}'
    text = compressed | {"Content-Type": "text/plain"}
    assert (await post(ingest, PIPELINES["plain"], compress(b"x" * (1024 * 1024 - 1)), **text))[0] == 202
    for body, headers, expected in (
        (compress(b"x" * 1024 * 1024), text, 413),
        (b"{}", compressed, 400),
        (compress(b"{}")[:-1], compressed, 400),
        (b"{}", {"Content-Encoding": "lzma"}, 415),
    ):
        status, answer, _ = await post(ingest, PIPELINES["plain"], body, **headers)
        assert (status, answer["status"]) == (expected, expected)


async def test_other_addresses_and_methods(ingest: str) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{ingest}/v1/pipelines/x/messages") as answer:
            assert answer.status == 405
        async with session.get(f"{ingest}/nothing") as answer:
            assert answer.status == 404


async def post_named(ingest: str, pipeline: str, body: bytes, **headers: str) -> tuple[int, Any]:
    sent = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    url = f"{ingest}/v1/pipelines/{PIPELINES[pipeline]}/messages"
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=sent) as answer:
        return answer.status, await answer.json(content_type=None)


async def test_a_request_with_the_same_key_is_accepted_once(ingest: str) -> None:
    key = str(uuid.uuid4())
    first = await post_named(ingest, "plain", b'{"a":1}', Idempotency_Key=key)
    again = await asyncio.gather(*(post_named(ingest, "plain", b'{"a":1}', Idempotency_Key=key) for _ in range(5)))
    assert first[0] == 202
    assert again == [first] * 5
    assert (await post_named(ingest, "plain", b'{"a":2}', Idempotency_Key=key))[0] == 422
    other = await post_named(ingest, "plain", b'{"a":1}', webhook_id=str(uuid.uuid4()))
    assert other[0] == 202
    assert other[1] != first[1]


async def test_of_many_requests_at_once_with_one_key_one_is_accepted(ingest: str) -> None:
    key = str(uuid.uuid4())
    answers = await asyncio.gather(*(post_named(ingest, "plain", b"{}", Idempotency_Key=key) for _ in range(10)))
    assert {status for status, _ in answers} <= {202, 409}
    ids = {tuple(body["message_ids"]) for status, body in answers if status == 202}
    assert len(ids) == 1


async def test_a_refused_request_may_be_sent_again_with_its_key(ingest: str) -> None:
    key = str(uuid.uuid4())
    assert (await post_named(ingest, "plain", b"{broken", Idempotency_Key=key))[0] == 400
    assert (await post_named(ingest, "plain", b"{}", Idempotency_Key=key))[0] == 202


async def test_prometheus_reads_the_process(ingest: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{METRICS['port']}/metrics") as answer:
        assert "process_cpu_seconds_total" in await answer.text()
