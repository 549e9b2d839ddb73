"""What pages show in pictures: pipelines that are healthy, failing and unpublished, and messages through them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.installation import Installation
from tests.receiver import receiver_in_thread
from tests.waiting import wait_until

EMPTY = "empty"
"""The short name of a workspace that has nothing."""

_STEPS: list[dict[str, Any]] = [
    {"type": "rename", "path": "user", "to": "customer"},
    {"type": "drop_unless", "path": "amount", "condition": "greater_than", "value": 5},
    {"type": "set", "path": "source", "value": "web"},
    {"type": "mask", "path": "customer.email", "how": "redact"},
]

_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "order", "type": "string"}, {"name": "amount", "type": "double"}],
}


@dataclass
class Data:
    healthy: str
    failing: str
    draft: str
    connector: str
    message: str
    collection: str
    collection_lost: str
    collection_new: str


def _order(number: int) -> dict[str, Any]:
    return {
        "order": f"A-{number}",
        "amount": 3 + number % 40,
        "user": {"name": "Ana", "email": "ana@example.com", "country": "BR"},
    }


@contextmanager
def filled(installation: Installation, note: Path) -> Iterator[Data]:
    """Creates the data unless the note says that it was created before, while receivers run."""
    answers = {"/erp": 200, "/crm": 503}

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=answers.get(request.path, 200), text='{"detail": "maintenance until 18:00"}')

    with receiver_in_thread(answer) as server:
        if note.exists():
            yield Data(**json.loads(note.read_text()))
            return
        data = _create(installation, server.url)
        note.write_text(json.dumps(asdict(data)))
        yield data


def _create(installation: Installation, url: str) -> Data:
    erp, crm = (
        installation.create("connectors/", {"name": name, "type": "http", "connection": {"url": f"{url}{path}"}})["id"]
        for name, path in (("ERP", "erp"), ("CRM", "crm"))
    )
    breaker = {"open_seconds": 3600}
    healthy, failing, draft = (
        str(installation.create("pipelines/", {"name": name, "config": config})["id"])
        for name, config in {
            "Orders to the ERP": {
                "transforms": _STEPS,
                "index": [{"name": "country", "path": "customer.country", "type": "string"}],
                "outputs": [
                    {"name": "erp", "connector": erp, "rate_limit": {"messages": 500, "period_seconds": 1}},
                    {"name": "archive", "connector": erp},
                ],
            },
            "Customers to the CRM": {
                "outputs": [{"name": "crm", "connector": crm, "breaker": breaker}, {"name": "erp", "connector": erp}]
            },
            "Invoices (draft)": {"outputs": [{"name": "erp", "connector": erp}]},
        }.items()
    )
    for pipeline in (healthy, failing):
        installation.create(f"pipelines/{pipeline}/publish/", {"note": "First version, agreed with the ERP team."})
        wait_until(lambda pipeline=pipeline: installation.post(pipeline, _order(0))[0] == 202)  # type: ignore[misc]
    changed = {"name": "Orders to the ERP", "config": installation.api("GET", f"pipelines/{healthy}/")[1]["config"]}
    changed["config"]["transforms"].append({"type": "remove", "paths": ["debug"]})
    assert installation.api("PUT", f"pipelines/{healthy}/", changed)[0] == 200
    installation.accepted(healthy, map(_order, range(200)))
    message = installation.accepted(failing, map(_order, range(60)))[0]
    wait_until(lambda: installation.api("GET", f"dead-letters/?pipeline={failing}")[1]["results"], 120)
    for number in range(40):
        config = {"outputs": [{"name": "erp", "connector": erp}]}
        installation.create("pipelines/", {"name": f"Stock of warehouse {number + 1}", "config": config})
    installation.manage_in("shell", "-c", f"from tests.screens.past import write; write({healthy!r}, {failing!r})")
    statements = (
        "CREATE STREAM visits (visitor VARCHAR KEY, page VARCHAR, seconds INT) WITH (kafka_topic = 'visits', "
        "partitions = 3); CREATE TABLE visitors (visitor VARCHAR PRIMARY KEY, name VARCHAR) WITH (kafka_topic = "
        "'visitors', partitions = 3); SHOW STREAMS;"
    )
    installation.create("sql/", {"text": statements})
    return Data(healthy, failing, draft, erp, message, *_collections(installation, url))


def _collections(installation: Installation, url: str) -> list[str]:
    """One with documents, one whose files cannot be reached, and one that has none yet; and change streams of it."""
    connections: dict[str, dict[str, Any]] = {
        "orders": {"partitions": 3, "keep_hours": 720, "avro_schema": _SCHEMA, "values": "avro"},
        "invoices of 2025": {"reduce": "last_by_key", "deletions": "cdc"},
        "returns": {},
    }
    made = [
        str(installation.create("connectors/", {"name": name, "type": "collection", "connection": connection})["id"])
        for name, connection in connections.items()
    ]
    for name, path in (("Orders in Materialize", "erp"), ("Orders at the partner", "crm")):
        connection = {
            "reduce": "last_by_key",
            "avro_schema": _SCHEMA,
            "transport": {"type": "http", "url": f"{url}{path}"},
            "collections": ["orders"],
        }
        installation.create("connectors/", {"name": name, "type": "materialize_cdc", "connection": connection})
    arguments = ", ".join(map(repr, made[:2]))
    installation.manage_in("shell", "-c", f"from tests.screens.past import keep; keep({arguments})")
    return made
