"""Each connector is tested on its page: with what its system takes, and with what it refuses, most often a login."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import redis
from aiohttp import web
from playwright.sync_api import Page, expect

from backend.domain.message import new_message_id
from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from tests.azurite import KEY
from tests.delta_sharing import profile
from tests.e2e.browser import Requests, browser, page, sign_in
from tests.e2e.matrix.all_ends import ends_of
from tests.e2e.matrix.ends import End, Inlet, Outlet
from tests.e2e.matrix.running import start_servers
from tests.infra import REDIS_PORT, REDIS_URL, VAR
from tests.installation import Installation
from tests.jdbc import jdbc_drivers  # noqa: F401
from tests.kafka_cluster import USERS, KafkaCluster
from tests.mariadb import mariadb_server  # noqa: F401
from tests.ports import free_ports
from tests.receiver import Receiver, receiver_in_thread
from tests.seaweedfs import seaweedfs  # noqa: F401

__all__ = ["browser", "page"]

pytestmark = pytest.mark.long

_WRONG = "planted-wrong-password"
_TOKEN = "token-of-the-receiver"
_NOBODY = f"127.0.0.1:{free_ports(1)[0]}"


@dataclass(frozen=True)
class Case:
    type: str
    part: str
    """The field of the connection that is changed, with dots between those of objects."""
    wrong: Any


CASES = [
    Case("azure_blob", "access.key", KEY[:-6] + "AAAA=="),
    Case("delta_sharing", "profile.file", profile(token=_WRONG)["profile"]["file"]),
    Case("elasticsearch", "authentication.password", _WRONG),
    Case("gcs", "bucket", "no-such-bucket"),
    Case("http", "authentication.token", _WRONG),
    Case("jdbc", "password", _WRONG),
    Case("kafka", "security.password", _WRONG),
    Case("kinesis", "endpoint", f"http://{_NOBODY}"),
    Case("local_files", "folder", "no-such-folder"),
    Case("mongodb", "password", _WRONG),
    Case("mqtt", "password", _WRONG),
    Case("nats", "login.password", _WRONG),
    Case("postgres_cdc", "password", _WRONG),
    Case("pubsub", "access.endpoint", _NOBODY),
    Case("rabbitmq", "password", _WRONG),
    Case("redis_stream", "password", _WRONG),
    Case("s3", "access.secret_access_key", _WRONG),
    Case("sftp", "access.password", _WRONG),
    Case("sql", "password", _WRONG),
    Case("sqs", "access.secret_access_key", _WRONG),
]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Receiver]:
    """A receiver that asks for a token."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=200 if request.headers.get("Authorization") == f"Bearer {_TOKEN}" else 401)

    with receiver_in_thread(answer) as server:
        yield server


@pytest.fixture(scope="module")
def secured(project_layout: Layout) -> Iterator[KafkaCluster]:
    """A broker that asks for a login."""
    folder = Path(mkdtemp(prefix="pages-", dir=VAR))
    cluster = KafkaCluster(folder, project_layout.jars, java_home(project_layout), size=1)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def connection(case: Case, request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """What the system of the tests takes."""
    match case.type:
        case "redis_stream":
            request.getfixturevalue("redis_server")
            with redis.from_url(REDIS_URL) as client:
                client.acl_setuser(user := new_message_id(), True, passwords=["+right"], keys=["*"], commands=["+@all"])
                yield {"host": "127.0.0.1", "port": REDIS_PORT, "username": user, "password": "right"}
                client.acl_deluser(user)
        case "http":
            server: Receiver = request.getfixturevalue("guarded")
            yield {"url": server.url, "authentication": {"type": "bearer", "token": _TOKEN}}
        case "kafka":
            cluster: KafkaCluster = request.getfixturevalue("secured")
            login = {"type": "sasl", "mechanism": "PLAIN", "username": "alice", "password": USERS["alice"]}
            yield {"bootstrap_servers": cluster.bootstrap("SASL_PLAINTEXT"), "security": login}
        case _:
            kind = _end_of(case.type)
            start_servers(request, [kind])
            with ThreadPoolExecutor(1) as thread:  # some ends run an event loop, which this thread has already
                end = thread.submit(kind).result()
            yield end.connection
            end.close()


def test_every_connector_of_the_matrix_is_here() -> None:
    assert {case.type for case in CASES} == {end.type for end in [*ends_of(Inlet), *ends_of(Outlet)]}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.type)
def test_its_page_says_that_it_is_connected_or_what_is_wrong_at_its_field(
    page: Page, installation: Installation, case: Case, connection: dict[str, Any]
) -> None:
    requests = Requests(page)
    sign_in(page, installation)
    right = _saved(installation, case.type, connection)
    wrong = _saved(installation, case.type, _changed(connection, case))

    requests.goto(f"/connectors/{right}/edit")
    page.get_by_role("button", name="Test connection").click()
    expect(page.locator("form").get_by_role("status")).to_be_visible()

    requests.goto(f"/connectors/{wrong}/edit")
    page.get_by_role("button", name="Test connection").click()
    problems = page.get_by_role("alert").filter(has_text="Correct these fields")
    expect(problems).to_be_visible()
    status, answer = installation.api("POST", f"connectors/{wrong}/test/", {})
    assert status == 400
    [(field, [sentence])] = answer["errors"].items()
    assert field == f"connection.{case.part.split('.')[0]}"
    expect(page.locator("form").get_by_text(sentence).filter(visible=True)).to_have_count(1)
    assert _WRONG not in page.content()


def _end_of(type: str) -> type[End]:
    return next(end for end in [*ends_of(Outlet), *ends_of(Inlet)] if end.type == type)


def _saved(installation: Installation, type: str, connection: dict[str, Any]) -> str:
    named = {"name": new_message_id(), "type": type, "connection": connection}
    return str(installation.create("connectors/", named)["id"])


def _changed(connection: dict[str, Any], case: Case) -> dict[str, Any]:
    changed = part = deepcopy(connection)
    *outer, last = case.part.split(".")
    for name in outer:
        part = part[name]
    part[last] = case.wrong
    return changed
