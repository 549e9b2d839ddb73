"""The worker that sends all change streams, and collections as their sources."""

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiohttp import web
from rest_framework.test import APIClient

from backend.apps.change_streams import worker
from backend.apps.change_streams.models import ChangeStreamState
from backend.apps.collections.services import collection_reset, collections_maintain
from backend.apps.connectors.models import Connector
from backend.apps.connectors.services import connector_create, connector_delete, connector_update
from backend.apps.workspaces.models import Workspace
from backend.domain.errors import ConfigError, ConflictError
from tests import factories
from tests.cdc_check import checked
from tests.gateways import TestCollection, make_collection
from tests.integration.change_streams.receiver_process import ReceiverProcess
from tests.receiver import Receiver, receiver_in_thread
from tests.waiting import wait_until

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "state", "type": "string"}],
}


@pytest.fixture
def workspace(transactional_db: None) -> Workspace:
    return factories.make_workspace()


@contextmanager
def running() -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=worker.run, args=[stop])
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


def make_stream(workspace: Workspace, url: str, *collections: TestCollection, reduce: str = "last_by_key") -> Connector:
    connection = {
        "reduce": reduce,
        "avro_schema": SCHEMA,
        "transport": {"type": "http", "url": url},
        "collections": [collection.topic for collection in collections],
        "partitions": 2,
    }
    return connector_create(
        workspace=workspace,
        actor=factories.admin_of(workspace),
        name=f"changes-{Connector.objects.count()}",
        type="materialize_cdc",
        connection=connection,
    )


def write(collection: TestCollection, state: str, *ids: str, deleted: bool = False) -> None:
    values = [json.dumps({"id": one, "state": state}).encode() for one in ids]
    collection.write(values, keys=[one.encode() for one in ids], deleted=deleted)


def error_of(stream: Connector) -> str:
    state = ChangeStreamState.objects.filter(connector=stream).first()
    return state.error if state is not None else ""


def reported(workspace: Workspace) -> dict[str, Any]:
    """The workspace's only stream as the API shows it."""
    client = APIClient()
    client.force_login(factories.admin_of(workspace))
    [stream] = client.get("/api/v1/change-streams/").json()["results"]
    return dict(stream)


def shows(receiver: ReceiverProcess, **records: str) -> None:
    """Waits until the receiver has these records, each once: their ids and states."""
    expected = Counter(json.dumps({"id": one, "state": state}, sort_keys=True) for one, state in records.items())

    def shown() -> Counter[str]:
        entries: list[dict[str, Any]] = receiver.shown()["records"]
        return Counter({json.dumps(entry["record"], sort_keys=True): entry["count"] for entry in entries})

    wait_until(lambda: shown() == expected, explain=shown)
    messages = receiver.messages()
    assert checked(messages)[0] == expected


def test_collections_feed_a_stream(workspace: Workspace, receiver: ReceiverProcess) -> None:
    orders = make_collection(workspace, 2, reduce="last_by_key", keep_hours=1)
    returns = make_collection(workspace, 1)
    write(orders, "new", "a", "b", "c")
    stream = make_stream(workspace, receiver.url, orders, returns)
    assert {"state": "starting", "complete": None, "waiting": 3, "failures": []}.items() <= reported(workspace).items()
    with running():
        shows(receiver, a="new", b="new", c="new")
        wait_until(lambda: reported(workspace)["state"] == "sending")
        assert reported(workspace)["complete"] > 0
        assert reported(workspace)["waiting"] == 0
        write(returns, "back", "z")
        write(orders, "paid", "a")
        write(orders, "gone", "b", deleted=True)
        shows(receiver, a="paid", c="new", z="back")
    with running():  # another process, which restores the records of all keys from the log
        write(orders, "sent", "a")
        collections_maintain()
        shows(receiver, a="sent", c="new", z="back")
        collection_reset(collection=orders.connector, actor=factories.admin_of(workspace))
        write(orders, "again", "c")
        shows(receiver, c="again", z="back")
        write(returns, "last", "y")
        returns.write([b'{"id":1}'], keys=[b"y"])
        wait_until(lambda: "Document 2 of partition 0 of the collection" in error_of(stream))
        assert reported(workspace)["state"] == "failing"
        assert reported(workspace)["failures"] == [error_of(stream)]
        assert reported(workspace)["waiting"] >= 1
        write(orders, "on", "d")
        shows(receiver, c="again", d="on", z="back", y="last")
    with pytest.raises(ConflictError, match=stream.name):
        connector_delete(connector=orders.connector, actor=factories.admin_of(workspace))


def test_a_stream_that_cannot_be_sent_holds_up_no_other(workspace: Workspace) -> None:
    orders = make_collection(workspace, 1)
    write(orders, "new", "a")

    async def take(_: web.Request) -> web.Response:
        return web.Response()

    def state_at(receiver: Receiver) -> list[str]:
        messages = [message for body in list(receiver.bodies) for message in json.loads(body)]
        records, _ = checked(message.get("progress") or message["updates"] for message in messages)
        assert set(records.values()) <= {1}
        return [json.loads(record)["state"] for record in records]

    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        receiver_in_thread(take) as working,
        receiver_in_thread(take) as later,
    ):
        hanging = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        moved, *_ = [make_stream(workspace, hanging, orders) for _ in range(8)]
        broken = make_stream(workspace, hanging, orders)
        Connector.objects.filter(pk=broken.pk).update(schema_version=99)
        good = make_stream(workspace, working.url, orders)
        with running():
            wait_until(lambda: state_at(working) == ["new"])
            wait_until(lambda: error_of(broken) != "")
            assert error_of(good) == ""
            connection = moved.connection | {"transport": {"type": "http", "url": later.url}}
            connector_update(
                connector=moved, actor=factories.admin_of(workspace), name=moved.name, connection=connection
            )
            wait_until(lambda: state_at(later) == ["new"], 120)
            connector_delete(connector=moved, actor=factories.admin_of(workspace))
            write(orders, "paid", "a")
            wait_until(lambda: state_at(working) == ["paid"])


def test_a_source_has_to_exist(workspace: Workspace) -> None:
    missing = make_collection(factories.make_workspace(), 1)
    with pytest.raises(ConfigError) as error:
        make_stream(workspace, "http://127.0.0.1:1", missing)
    assert list(error.value.errors) == ["connection.collections.0"]


def test_differences_need_all_documents(workspace: Workspace) -> None:
    reduced = make_collection(workspace, 1, reduce="last_by_key")
    stream = make_stream(workspace, "http://127.0.0.1:1", reduced, reduce="deltas")
    with running():
        wait_until(lambda: "last document of each key" in error_of(stream))
