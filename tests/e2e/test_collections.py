"""A collection as its user has it: from messages to kcat and to the reference receiver of change streams."""

import json
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator

import pytest

from backend.runtime.health import is_listening
from backend.settings import ROOT
from tests.infra import VAR
from tests.installation import Installation
from tests.ports import free_ports
from tests.waiting import LIMIT_SECONDS, start_of, wait_for_processes, wait_until

SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
MESSAGES = 200


@pytest.fixture
def receiver() -> Iterator[str]:
    [port] = free_ports(1)
    command = [sys.executable, str(ROOT / "manage.py"), "cdc_receiver", "--listen", f"127.0.0.1:{port}"]
    path = VAR / "cdc-receiver.log"
    with path.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    wait_for_processes([start_of("cdc_receiver", lambda: is_listening(f"127.0.0.1:{port}"), process, path)])
    yield f"http://127.0.0.1:{port}/"
    process.kill()
    process.wait()


def test_what_a_pipeline_keeps_is_read_by_consumers(installation: Installation, receiver: str) -> None:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    collection = installation.create(
        "connectors/", {"name": name, "type": "collection", "connection": {"partitions": 2}}
    )
    stream = installation.create(
        "connectors/",
        {
            "name": f"{name}-changes",
            "type": "materialize_cdc",
            "connection": {
                "reduce": "last_by_key",
                "avro_schema": SCHEMA,
                "transport": {"type": "http", "url": receiver},
            },
        },
    )
    options = {"key": "{{id}}"}
    outputs = [
        {"name": "log", "connector": collection["id"], "options": options},
        {"name": "changes", "connector": stream["id"], "options": options},
    ]
    pipeline = installation.create("pipelines/", {"name": name, "config": {"outputs": outputs}})["id"]
    installation.create(f"pipelines/{pipeline}/publish/", {})
    wait_until(lambda: installation.post(pipeline, {"id": 0})[0] == 202)
    installation.accepted(pipeline, [{"id": number} for number in range(1, MESSAGES)])

    def shown() -> int:
        return int(installation.api("GET", f"collections/{collection['id']}/")[1]["documents"])

    wait_until(lambda: shown() >= MESSAGES, 120)
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "demo",
        "sasl.password": installation.facts["demo"]["api_key"],
    }
    settings = [part for pair in login.items() for part in ("-X", "=".join(pair))]
    command = [
        "kcat",
        "-b",
        installation.endpoint("read_gateway"),
        *settings,
        "-C",
        "-t",
        name,
        "-o",
        "beginning",
        "-eq",
    ]

    def read() -> list[int]:
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
        return sorted(json.loads(line)["id"] for line in done.stdout.splitlines())

    wait_until(lambda: len(read()) >= MESSAGES, 120)  # a node learns of a new collection within a second
    assert read() == list(range(MESSAGES))

    def records() -> list[dict[str, int]]:
        with urllib.request.urlopen(receiver, timeout=LIMIT_SECONDS) as answer:
            return [entry["record"] for entry in json.load(answer)["records"] if entry["count"] == 1]

    wait_until(lambda: len(records()) >= MESSAGES, 120)
    assert sorted(record["id"] for record in records()) == list(range(MESSAGES))
