"""Components that are single files: each in ``tests/plugins`` is dropped in beside Headrace's own, and its form,
validation, documentation and delivery work."""

import json
from pathlib import Path
from typing import Any

from aiohttp import web

from backend.domain.connector import connectors
from backend.domain.message import new_message_id
from backend.domain.transforms.base import transforms
from backend.runtime.reference import page
from tests.infra import PLUGINS_FOLDER
from tests.installation import Installation
from tests.receiver import Receiver, receiver_in_thread
from tests.waiting import wait_until


def test_each_toy_is_one_file() -> None:
    own = {path.stem for path in PLUGINS_FOLDER.glob("*/*.py")}
    assert own == {
        "toy_file",
        "toy_journal",
        "toy_lines",
        "toy_ticks",
        "toy_shelf",
        "toy_store",
        "toy_shout",
        "toy_hostile",
    }
    project = PLUGINS_FOLDER.parents[1]
    for folder in ("backend", "spark_jobs", "frontend/src"):
        mentions = [path for path in (project / folder).rglob("*.*") if path.is_file() and b"toy_" in path.read_bytes()]
        assert mentions == []


def connector(installation: Installation, type: str, connection: dict[str, Any]) -> str:
    named = {"name": f"{type} {new_message_id()}", "type": type, "connection": connection}
    return str(installation.create("connectors/", named)["id"])


def test_toys_have_forms_documents_and_errors_at_their_fields(installation: Installation) -> None:
    _, types = installation.api("GET", "connector-types/")
    offered = {one["type"]: one for one in types if one["type"].startswith("toy_")}
    assert {type: list(one["capabilities"]) for type, one in offered.items()} == {
        "toy_file": ["deliver"],
        "toy_journal": ["read_batch", "read_stream"],
        "toy_lines": ["read_batch"],
        "toy_shelf": ["read_batch", "register"],
        "toy_store": ["export"],
        "toy_ticks": ["read_stream"],
    }
    options = offered["toy_lines"]["capabilities"]["read_batch"]["options_schema"]
    assert options["properties"]["file"]["description"].startswith("File to read")
    _, schema = installation.api("GET", "pipelines/schema/")
    assert "ToyShout" in schema["$defs"]
    assert "Lines that are read at a time." in page(connectors.get("toy_lines"))
    assert transforms.get("toy_shout").example

    lines = connector(installation, "toy_lines", {"folder": "/nowhere", "passwords": ["a-secret-of-lines"]})
    _, shown = installation.api("GET", f"connectors/{lines}/")
    assert "a-secret-of-lines" not in json.dumps(shown)
    status, refused = installation.api("POST", f"connectors/{lines}/test/", {})
    assert (status, list(refused["errors"])) == (400, ["connection.folder"])
    config = {
        "input": {"type": "connector", "connector": lines, "options": {"at_a_time": 0}},
        "outputs": [{"name": "out", "connector": lines}],
    }
    status, refused = installation.api("POST", "pipelines/", {"name": "Toys refused", "config": config})
    assert status == 400
    assert set(refused["errors"]) == {
        "config.input.options.file",
        "config.input.options.at_a_time",
        "config.outputs.0.connector",
    }


def test_a_toy_input_a_toy_step_and_a_toy_output_carry_messages(installation: Installation, tmp_path: Path) -> None:
    source = tmp_path / "orders"
    source.write_text("".join(f'{{"n": {n}, "name": "ana"}}\n' for n in range(5)))
    files = connector(installation, "toy_file", {"folder": str(tmp_path)})
    lines = connector(installation, "toy_lines", {"folder": str(tmp_path)})
    pipeline = installation.create(
        "pipelines/",
        {
            "name": "Toys",
            "config": {
                "input": {"type": "connector", "connector": lines, "options": {"file": "orders"}, "ordering_key": "n"},
                "transforms": [{"type": "toy_shout", "path": "name"}],
                "outputs": [{"name": "file", "connector": files, "options": {"file": "delivered"}}],
            },
        },
    )["id"]
    installation.create(f"pipelines/{pipeline}/publish/", {})
    delivered = tmp_path / "delivered"

    def numbers() -> list[int]:
        written = delivered.read_text().splitlines() if delivered.exists() else []
        assert all(json.loads(line)["name"] == "ANA" for line in written)
        return sorted(json.loads(line)["n"] for line in written)

    wait_until(lambda: len(numbers()) == 5)
    assert numbers() == list(range(5))
    # What is added later is read from the breakpoint on; a line that is no JSON stops nothing.
    with source.open("a") as file:
        file.write('nonsense\n{"n": 5, "name": "ana"}\n')
    wait_until(lambda: len(numbers()) == 6)
    assert numbers() == list(range(6))

    def letters() -> list[tuple[str, str]]:
        _, answer = installation.api("GET", f"dead-letters/?pipeline={pipeline}")
        return [(letter["stage"], letter["reason"]) for letter in answer["results"]]

    wait_until(lambda: letters() == [("input_batching", "not_json")])

    def counts() -> dict[str, int]:
        _, metrics = installation.api("GET", f"pipelines/{pipeline}/metrics/")
        return dict(metrics["last_24_hours"])

    wait_until(lambda: counts().get("output.file.delivered") == 6)
    installation.create(f"pipelines/{pipeline}/pause/", {})


def test_a_toy_stream_is_read_and_changes_of_its_pipeline_are_followed(
    installation: Installation, inbox: Receiver
) -> None:
    ticks = connector(installation, "toy_ticks", {"seconds": 0.2})
    source = {"type": "connector", "connector": ticks}
    pipeline = installation.publish_pipeline("Toy ticks", inbox.url, input=source)
    wait_until(lambda: len(inbox.bodies) >= 3)
    assert all("tick" in json.loads(body) for body in inbox.bodies)
    with receiver_in_thread(take) as other_inbox:
        other = installation.publish_pipeline("Other toy ticks", other_inbox.url, input=source)
        wait_until(lambda: other_inbox.bodies)
        installation.create(f"pipelines/{pipeline}/pause/", {})

        def stands_still_while_the_other_goes_on() -> bool:
            before, of_other = len(inbox.bodies), len(other_inbox.bodies)
            wait_until(lambda: len(other_inbox.bodies) >= of_other + 15)
            return len(inbox.bodies) == before

        wait_until(stands_still_while_the_other_goes_on)
        installation.create(f"pipelines/{other}/pause/", {})


async def take(_: web.Request) -> web.Response:
    return web.Response()


def test_messages_are_delivered_in_batches(installation: Installation, inbox: Receiver) -> None:
    http = connector(installation, "http", {"url": inbox.url})
    output = {"name": "out", "connector": http, "batch": {"messages": 50, "seconds": 1}}
    pipeline = installation.create("pipelines/", {"name": "Batches", "config": {"outputs": [output]}})["id"]
    installation.create(f"pipelines/{pipeline}/publish/", {})
    wait_until(lambda: installation.post(pipeline, {"n": 0})[0] == 202)
    installation.accepted(pipeline, ({"n": n} for n in range(1, 300)))

    def numbers() -> list[int]:
        return sorted(json.loads(line)["n"] for body in inbox.bodies for line in body.splitlines())

    wait_until(lambda: len(numbers()) >= 300)
    assert numbers() == list(range(300))
    assert len(inbox.bodies) < 150

    def billed() -> int:
        _, usage = installation.api("GET", f"usage/?pipeline={pipeline}")
        return sum(row["deliveries"] for row in usage)

    wait_until(lambda: billed() == 300)
