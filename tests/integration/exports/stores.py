"""Pipelines whose outputs store files in a folder, their messages, and what arrives."""

import json
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from backend.apps.exports.models import StagingPosition
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.services import pipeline_publish
from backend.apps.workspaces.models import Workspace
from backend.domain import routing
from backend.domain.message import Message, new_message_id, utc_now
from backend.domain.records import staged_record
from backend.kafka.client.ends import end_offsets
from tests import factories
from tests.infra import FILES_ROOT, KAFKA
from tests.waiting import LIMIT_SECONDS


def storing_pipeline(
    folder: Path, workspace: Workspace | None = None, type: str = "toy_store", **files: Any
) -> Pipeline:
    """Published, with an output that stores files in the folder."""
    workspace = workspace or factories.make_workspace()
    place = str(folder.relative_to(FILES_ROOT) if type == "local_files" else folder)
    store = factories.make_connector(workspace, type=type, folder=place)
    output = factories.output(store, name="files", files={"message_fields": True, **files})
    pipeline = factories.make_pipeline(workspace, outputs=[output])
    return pipeline_publish(pipeline=pipeline, actor=factories.admin_of(workspace))


def message_of(pipeline: Pipeline, content: Any) -> Message:
    assert pipeline.published is not None
    message_id = new_message_id()
    return Message(
        message_id,
        str(pipeline.pk),
        pipeline.published.number,
        message_id.encode(),
        json.dumps(content).encode(),
        "application/json",
        utc_now(),
        (),
    )


def stage_from_here() -> None:
    """Earlier tests' messages in the topic are not this test's."""
    ends = end_offsets(AdminClient({"bootstrap.servers": KAFKA}), {routing.EXPORT})
    for (_, partition), end in ends.items():
        StagingPosition.objects.create(partition=partition, offset=end)


def hand_over(pipeline: Pipeline, messages: list[Message]) -> None:
    """As the delivery engine does."""
    producer = Producer({"bootstrap.servers": KAFKA})
    for message in messages:
        record = staged_record(message, workspace_id=str(pipeline.workspace_id), output="files")
        producer.produce(record.topic, record.value, record.key, headers=list(record.headers))
        producer.poll(0)
    assert producer.flush(LIMIT_SECONDS) == 0


def visible(folder: Path) -> list[Path]:
    """What a reader of the store sees."""
    files = (path for path in folder.rglob("*") if path.is_file() and ".uploads" not in path.parts)
    hidden = (".manifest.json", ".done", ".headrace-unfinished")
    return sorted(path for path in files if not path.name.endswith(hidden))
