"""Secrets are planted in every field that takes one, used, and searched for in every kind of output."""

import html
import json
import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
import redis
from aiohttp import web
from playwright.sync_api import Error, Page, Response

from backend.runtime.layout import Layout
from tests.e2e.browser import Requests, browser, page, sign_in
from tests.e2e.test_messages import name
from tests.installation import Installation, call
from tests.receiver import Receiver, receiver_in_thread
from tests.waiting import wait_until

__all__ = ["browser", "page"]

BEARER, BASIC, HEADER, WEBHOOK = (f"planted-{word}-7c1f0a" for word in ("bearer", "basic", "header", "webhook"))
BASIC_SENT = b64encode(f"user:{BASIC}".encode()).decode()
PLANTED = [BEARER, BASIC, BASIC_SENT, HEADER, WEBHOOK]

CONNECTIONS: dict[str, dict[str, Any]] = {
    "bearer": {"authentication": {"type": "bearer", "token": BEARER}},
    "basic": {"authentication": {"type": "basic", "username": "user", "password": BASIC}},
    "header": {"secret_headers": {"X-Key": HEADER}},
}
CONSOLE = [
    *("/pipelines", "/connectors", "/config-files", "/dead-letters", "/attempts", "/usage", "/jobs", "/alerts"),
    *("/access", "/audit"),
]


def found_in(text: str | bytes) -> list[str]:
    data = text.encode() if isinstance(text, str) else text
    forms = {secret: (secret.encode(), secret.encode().hex().encode()) for secret in PLANTED}
    return [secret for secret, written in forms.items() if any(form in data for form in written)]


@pytest.fixture(scope="module")
def telling() -> Iterator[Receiver]:
    """A receiver that rejects messages and echoes what it was sent in its answer."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=400, text=json.dumps(dict(request.headers)))

    with receiver_in_thread(answer) as server:
        yield server


@pytest.fixture(scope="module")
def planted(installation: Installation, telling: Receiver) -> list[str]:
    """A pipeline that webhooks come in by, whose outputs were refused with their secrets in the answer, and whose
    connectors were tested; paths of the console's pages of all."""
    webhook = {"scheme": {"type": "bearer", "token": WEBHOOK}}
    connectors = [installation.create("connectors/", {"name": name(), "type": "webhook", "connection": webhook})["id"]]
    config: dict[str, Any] = {"outputs": [], "input": {"verification": {"connector": connectors[0]}}}
    for kind, connection in CONNECTIONS.items():
        body = {"name": name(), "type": "http", "connection": {"url": telling.url, **connection}}
        connector = installation.create("connectors/", body)
        installation.api("POST", f"connectors/{connector['id']}/test/", connector)
        connectors.append(connector["id"])
        config["outputs"].append({"name": kind, "connector": connector["id"]})
    pipeline = installation.create("pipelines/", {"name": name(), "config": config})["id"]
    installation.create(f"pipelines/{pipeline}/publish/", {})
    url = f"{installation.endpoint('ingest')}/v1/pipelines/{pipeline}/messages"
    assert call("POST", url, {}, "wrong")[0] in (401, 404)
    wait_until(lambda: call("POST", url, {"n": 1}, WEBHOOK)[0] == 202)
    wait_until(lambda: refused_outputs(installation, pipeline) == set(CONNECTIONS))
    installation.api("POST", f"pipelines/{pipeline}/dry-run/", {"body": "{}"})
    seen = {secret for headers in telling.headers for secret in found_in(json.dumps(headers))}
    assert seen == {BEARER, BASIC_SENT, HEADER}  # they do arrive where they belong
    return [*(f"/connectors/{connector}/edit" for connector in connectors), *pages_of(pipeline)]


def refused_outputs(installation: Installation, pipeline: str) -> set[str]:
    letters = installation.api("GET", f"dead-letters/?pipeline={pipeline}")[1]["results"]
    return {letter["output"] for letter in letters}


def pages_of(pipeline: str) -> list[str]:
    return [
        f"/pipelines/{pipeline}",
        *(f"/pipelines/{pipeline}/{tab}" for tab in ("outputs", "versions", "edit")),
    ]


def body_of(answer: Response) -> bytes:
    """Empty for an answer that arrived during navigation: the browser has discarded it."""
    try:
        return answer.body()
    except Error as error:
        assert "navigated away" in str(error)  # noqa: PT017
        return b""


def test_no_secret_comes_out_of_the_browser(page: Page, installation: Installation, planted: list[str]) -> None:
    heard: list[tuple[str, str | bytes]] = []
    page.on("websocket", lambda s: s.on("framereceived", lambda frame: heard.append((s.url, frame))))
    answers: list[Any] = []
    requests = Requests(page)
    sign_in(page, installation)
    requests.wait_until_answered()
    page.on("response", lambda answer: answers.append(answer))  # noqa: PLW0108  (no built-in method is taken)
    for path in [*CONSOLE, *planted]:
        requests.goto(path)
        heard.append((path, page.content()))
        heard += [(answer.url, body_of(answer)) for answer in answers if answer.status not in (204, 302, 304)]
        answers.clear()
    assert [(url, found_in(content)) for url, content in heard if found_in(content)] == []
    everything = b"".join(text if isinstance(text, bytes) else text.encode() for _, text in heard)
    assert b"The receiver answered 400" in everything  # what would hold them was really there
    assert b'"type":"news"' in everything.replace(b" ", b"")


def test_no_secret_comes_out_of_the_admin_site(page: Page, installation: Installation, planted: list[str]) -> None:
    sign_in(page, installation)
    page.goto("/admin/")
    pages = {a.get_attribute("href") for a in page.locator("#content a[href^='/admin/']").all()}
    assert len(pages) > 5
    opened = 0

    def read(path: str) -> str:
        answer = page.request.get(path)
        assert answer.ok, path
        assert (path, found_in(answer.body())) == (path, [])
        return answer.text()

    # Its pages are made by the server, so each is read without being shown.
    for path in sorted(filter(None, pages)):
        table = read(path).partition('id="result_list"')[2].partition("</table>")[0]
        for row in re.findall(r'<a href="(/admin/[^"]+)"', table)[:50]:
            read(html.unescape(row))
            opened += 1
    assert opened > len(PLANTED)


def test_no_secret_comes_out_of_the_api(installation: Installation, planted: list[str]) -> None:
    status, schema = call("GET", f"{installation.endpoint('api')}schema.json")
    assert status == 200
    known = set(re.findall(r"[0-9a-f]{8}-[0-9a-f-]{27}", " ".join(planted)))
    requests = 0
    for path, methods in schema["paths"].items():
        if "get" not in methods:
            continue
        base = path.removeprefix("/api/v1/")
        for one in known if "{" in base else [""]:
            answer = installation.text(re.sub(r"\{[^}]+\}", one, base))
            assert (path, found_in(answer)) == (path, [])
            requests += 1
    assert requests > 30


def test_no_secret_rests_in_the_clear(installation: Installation, planted: list[str]) -> None:
    layout = Layout(installation.var, installation.offset)
    environment = json.loads(layout.environment_file.read_text())
    with psycopg.connect(environment["HEADRACE_DATABASE_URL"]) as database:
        tables = database.execute("SELECT schemaname, tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        assert len(tables) > 20
        for schema, table in tables:
            with database.cursor().copy(f'COPY (SELECT * FROM "{schema}"."{table}") TO STDOUT') as copied:
                assert (table, found_in(b"".join(bytes(part) for part in copied))) == (table, [])
    memory = redis.from_url(environment["HEADRACE_REDIS_URL"])
    kept = list(memory.scan_iter(count=1000))
    assert kept
    for key in kept:
        assert (key, found_in(key + (memory.dump(key) or b""))) == (key, [])
    logs = [file for file in Path(layout.var).rglob("*.log") if not file.is_relative_to(layout.var / "kafka")]
    assert len(logs) > 5
    for file in logs:
        assert (file.name, found_in(file.read_bytes())) == (file.name, [])
    for process in installation.processes():
        try:
            assert found_in(json.dumps([process.cmdline(), process.environ()])) == []
        except psutil.Error:
            continue  # it ended meanwhile, or belongs to another user
