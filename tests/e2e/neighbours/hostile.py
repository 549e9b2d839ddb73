"""The pipeline that gets every hostile message again and again, its sender and its receiver.

Its input is verified by signatures, its first step reads Avro whose schema refers to itself, its other steps make six
times twice as much of a field and a message of each item of a list, and its outputs are a receiver that answers a batch
with nonsense, one that asks to be left alone for some seconds, one that does so for a day, one whose header the
message writes, and topics of Kafka that take 2,000 bytes and as much as a message may have.
"""

import gzip
import http.client
import io
import itertools
import json
import secrets
import time
import uuid
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from threading import Event
from typing import Any
from urllib.parse import urlsplit
from zlib import crc32

import fastavro
from aiohttp import web
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from backend.domain import webhook_signature
from backend.domain.reasons import Reason
from tests.installation import Installation
from tests.receiver import Answer
from tests.waiting import LIMIT_SECONDS, PATIENCE, wait_until

_CHAIN = {"type": "record", "name": "Chain", "fields": [{"name": "next", "type": ["null", "Chain"]}]}
_NULLS = {"type": "array", "items": "null"}
_ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        *({"name": name, "type": "string"} for name in ("grows", "note", "pad")),
        {"name": "items", "type": {"type": "array", "items": "int"}},
    ],
}
_SCHEMA = {"type": "record", "name": "Any", "fields": [{"name": "any", "type": ["null", _CHAIN, _NULLS, _ORDER]}]}
_BRANCH_OF_CHAIN, _BRANCH_OF_NULLS, _BRANCH_OF_ORDER = b"\x02", b"\x04", b"\x06"

_STEPS: list[dict[str, Any]] = [
    {"type": "decode", "format": "avro", "avro_schema": _SCHEMA},
    *[{"type": "template", "path": "any.grows", "template": "{{any.grows}}{{any.grows}}"}] * 6,
    {"type": "split", "path": "any.items"},
]
_ITEMS = 200
_NARROW_BYTES = 2000
_WIDE_BYTES = 2 * 1024 * 1024
_INPUT_BYTES = 1024 * 1024

_STATUSES = ["1e400", "1e300000", "0", "99", "-1", "100", "false", "true", "200.9", "299.99", "600", '"200"', "null"]
"""Of a line of a batch, none of which is one."""
_ANSWERS = ["", "[", "[" * 100_000, "{}", "[]", "[null]", "\x00", '{"a":' * 50_000]
"""To a batch, in place of a status for each line."""


def _moments() -> Iterator[str]:
    """What stands in ``Retry-After``, of which nothing lasts longer than two seconds."""
    while True:
        yield from ("1", "0", "-1", "soon", "1e400", "", formatdate(time.time() + 2, usegmt=True))
        yield from (formatdate(0, usegmt=True), "Thu, 31 Feb 2199 25:61:61 GMT", "\xff")


@dataclass(frozen=True)
class Case:
    """A message that the input takes. ``letters`` are the reasons of its dead letters by output; the output of a
    message that fails at a step is empty."""

    name: str
    body: bytes
    letters: Mapping[str, str] = field(default_factory=dict)
    messages: int = 1
    """That are made of it."""


@dataclass(frozen=True)
class Refusal:
    """A request that the input refuses with a status."""

    name: str
    status: int
    body: bytes
    headers: Sequence[tuple[str, bytes]] = ()
    """In place of those of the same names."""


def _order(*, grows: str = "", note: str = "plain", pad: str = "", items: int = 1) -> bytes:
    written = io.BytesIO()
    order = {"grows": grows, "note": note, "pad": pad, "items": list(range(items))}
    fastavro.schemaless_writer(written, fastavro.parse_schema(_SCHEMA), {"any": ("Order", order)})
    return written.getvalue()


def _long(number: int) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, "long", number)
    return written.getvalue()


_TOO_LARGE: dict[str, str] = {"": Reason.TOO_LARGE}
_TOO_LARGE_FOR_KAFKA = "kafka_msg_size_too_large"

CASES = [
    Case("5,000 records in one another", _BRANCH_OF_CHAIN + b"\x02" * 5000 + b"\x00", _TOO_LARGE),
    Case("100 million nulls", _BRANCH_OF_NULLS + _long(10**8) + b"\x00", _TOO_LARGE),
    Case("900 kB that steps make 58 MB of", _order(grows="x" * 900_000), _TOO_LARGE),
    Case("bytes that are no Avro", _BRANCH_OF_ORDER + b"\xff\xff", {"": Reason.TRANSFORM_FAILED}),
    Case("a line break in a header", _order(note="a\r\nX-Evil: 1"), {"note": Reason.TEMPLATE}),
    Case("U+0000 in a header", _order(note="a\x00b"), {"note": Reason.TEMPLATE}),
    Case("a header that is not ASCII", _order(note="é")),
    Case("3,000 bytes for a topic that takes 2,000", _order(pad="x" * 3000), {"narrow": _TOO_LARGE_FOR_KAFKA}),
    Case("as much as the input takes", _order(pad="x" * (_INPUT_BYTES - 100)), {"narrow": _TOO_LARGE_FOR_KAFKA}),
    Case("200 of some 150 bytes at once", _order(pad="x" * 100, items=_ITEMS), messages=_ITEMS),
]

REFUSALS = [
    Refusal("a content type that is not ASCII", 400, b"{}", [("Content-Type", "text/é".encode())]),
    Refusal("a timestamp of 309 digits", 401, b"{}", [("webhook-timestamp", b"9" * 309)]),
    Refusal("a signature that is not ASCII", 401, b"{}", [("webhook-signature", b"v1,\xff\xfe")]),
    Refusal("one byte too many", 413, b"x" * (_INPUT_BYTES + 1)),
    Refusal("200 MB in 200 kB of gzip", 413, gzip.compress(bytes(200_000_000)), [("Content-Encoding", b"gzip")]),
    Refusal("an unknown coding", 415, b"{}", [("Content-Encoding", b"compress")]),
]

_CONNECTIONS: list[tuple[str, dict[str, Any]]] = [
    ("http", {"authentication": {"type": "bearer", "token": "a\r\nX-Evil: 1"}}),
    ("http", {"authentication": {"type": "bearer", "token": "a\x00"}}),
    ("http", {"secret_headers": {"X A": "1"}}),
    ("http", {"secret_headers": {"X-A": "1\n2"}}),
    ("webhook", {"scheme": {"type": "hmac", "header": "X Sig\n", "secret": "s3cret"}}),
]
"""What no connector may have."""


class Receiver:
    """``/odd`` answers batches with nonsense; ``/waits`` refuses one message of a hundred once, with ``Retry-After``;
    ``/held`` asks to be left alone for a day; ``/note`` accepts everything."""

    def __init__(self) -> None:
        self.taken: dict[str, Counter[str]] = {"waits": Counter(), "note": Counter()}
        """Deliveries by output and message."""
        self.asked: set[str] = set()
        """Messages that were refused once."""
        self.statuses = itertools.cycle([*_STATUSES, *_ANSWERS])
        self.moments = _moments()

    @property
    def answer(self) -> Answer:
        return self._answer

    async def _answer(self, request: web.Request) -> web.Response:
        output = request.path.strip("/")
        if output == "held":
            return web.Response(status=429, headers={"Retry-After": "86400"})
        if output == "odd":
            lines = len((await request.read()).splitlines())
            return web.Response(status=207, body=self._odd(lines), content_type="application/json")
        message = request.headers["Headrace-Message-Id"]
        if output == "waits" and crc32(message.encode()) % 100 == 0 and message not in self.asked:
            self.asked.add(message)
            return web.Response(status=503, headers={"Retry-After": next(self.moments)})
        self.taken[output][message] += 1
        return web.Response()

    def _odd(self, lines: int) -> bytes:
        answer = next(self.statuses)
        if answer in _STATUSES:
            line = f'{{"status": {answer}}}'
            answer = f"[{','.join([line] * lines)}]"
        return answer.encode()


@dataclass
class Hostile:
    """The pipeline and what was sent to it."""

    installation: Installation
    pipeline: str
    secret: str
    note: dict[str, Any]
    """The connector that is changed in every pass."""
    narrow: str
    wide: str
    accepted: dict[str, Case] = field(default_factory=dict)
    """By message id."""
    unexpected: list[str] = field(default_factory=list)
    """Answers that are not those that they should be."""
    passes: int = 0

    def run(self, stop: Event, pause: float) -> None:
        """Sends everything again and again, and once at least; a pass begins ``pause`` seconds after the last one."""
        while True:
            self._send_all()
            self.passes += 1
            if stop.wait(pause):
                return

    def await_accepting(self) -> None:
        """Returns once a message was accepted: publishing takes effect within a second."""
        wait_until(lambda: self._send(CASES[-1])[0] == 202)

    def _send(self, case: Case) -> tuple[int, Any]:
        status, answer = self._post(case.body, [])
        if status == 202:
            self.accepted[answer["message_ids"][0]] = case
        return status, answer

    def _send_all(self) -> None:
        for case in CASES:
            status, answer = self._send(case)
            if status != 202:
                self._note(case.name, status, answer)
        for refusal in REFUSALS:
            status, answer = self._post(refusal.body, refusal.headers)
            if status != refusal.status:
                self._note(refusal.name, status, answer)
        for type_, connection in _CONNECTIONS:
            url = {"url": "http://127.0.0.1:9/"} if type_ == "http" else {}
            body = {"name": uuid.uuid4().hex, "type": type_, "connection": url | connection}
            status, answer = self.installation.api("POST", "connectors/", body)
            if status != 400:
                self._note(f"{type_} {connection}", status, answer)
        connection = self.note["connection"] | {"secret_headers": {"X-Pass": str(self.passes)}}
        changed = {"name": self.note["name"], "type": "http", "connection": connection}
        status, answer = self.installation.api("PUT", f"connectors/{self.note['id']}/", changed)
        if status != 200:
            self._note("a changed connection", status, answer)

    def _note(self, name: str, status: int, answer: Any) -> None:
        self.unexpected.append(f"{name}: {status} {answer}")

    def _post(self, body: bytes, headers: Sequence[tuple[str, bytes]]) -> tuple[int, Any]:
        address = urlsplit(self.installation.endpoint("ingest"))
        id, now = f"msg_{uuid.uuid4().hex}", int(time.time())
        signature = webhook_signature.sign([webhook_signature.key_of(self.secret)], id, now, body)
        signed = {
            "Content-Type": b"avro/binary",
            "webhook-id": id.encode(),
            "webhook-timestamp": str(now).encode(),
            "webhook-signature": signature.encode(),
        }
        connection = http.client.HTTPConnection(address.netloc, timeout=LIMIT_SECONDS * PATIENCE)
        try:
            connection.putrequest("POST", f"/v1/pipelines/{self.pipeline}/messages")
            for name, value in (signed | dict(headers)).items():
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            with connection.getresponse() as answer:
                return answer.status, json.loads(answer.read())
        finally:
            connection.close()


def publish(installation: Installation, receiver: str) -> Hostile:
    """Creates topics, connectors and pipeline, and publishes it."""
    unique = uuid.uuid4().hex[:8]
    topics = {f"narrow-{unique}": _NARROW_BYTES, f"wide-{unique}": _WIDE_BYTES}
    kafka = installation.endpoint("kafka")
    new = [NewTopic(topic, 2, 1, config={"max.message.bytes": str(size)}) for topic, size in topics.items()]
    admin = AdminClient({"bootstrap.servers": kafka})
    for created in admin.create_topics(new).values():
        created.result()
    narrow, wide = topics

    def connector(name: str, type_: str, connection: dict[str, Any]) -> dict[str, Any]:
        body = {"name": f"Hostile {name} {unique}", "type": type_, "connection": connection}
        return installation.create("connectors/", body)

    def output(name: str, **more: Any) -> dict[str, Any]:
        connection = {"url": f"{receiver.rstrip('/')}/{name}"}
        return {"name": name, "connector": connector(name, "http", connection)["id"], **more}

    secret = f"whsec_{b64encode(secrets.token_bytes(32)).decode()}"
    scheme = {"type": "standard_webhooks", "secrets": {"now": secret}}
    verification = connector("senders", "webhook", {"scheme": scheme})["id"]
    cluster = connector("cluster", "kafka", {"bootstrap_servers": kafka})["id"]
    note = connector("note", "http", {"url": f"{receiver.rstrip('/')}/note"})
    retry = {"attempts": 2, "initial_seconds": 0.1}
    breaker = {"errors": 1000, "window_seconds": 1}
    config = {
        "input": {"type": "http", "verification": {"connector": verification}},
        "transforms": _STEPS,
        "outputs": [
            output(
                "odd", batch={"seconds": 0.5}, options={"batch_answer": "status_per_line"}, retry=retry, breaker=breaker
            ),
            output("waits", breaker=breaker),
            output("held", breaker=breaker),
            {"name": "note", "connector": note["id"], "options": {"headers": {"X-Note": "{{any.note}}"}}},
            {"name": "narrow", "connector": cluster, "options": {"topic": narrow}},
            {"name": "wide", "connector": cluster, "options": {"topic": wide}},
        ],
    }
    pipeline = installation.create("pipelines/", {"name": f"Hostile {unique}", "config": config})["id"]
    installation.create(f"pipelines/{pipeline}/publish/", {})
    return Hostile(installation, pipeline, secret, note, narrow, wide)
