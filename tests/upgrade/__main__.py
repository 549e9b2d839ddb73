import json
import sys

import django

django.setup()

from backend.apps.connectors.models import Connector  # noqa: E402
from backend.apps.connectors.secret_store import connection_with_secrets  # noqa: E402
from backend.apps.deliveries.models import DeadLetter  # noqa: E402
from backend.apps.jobs.models import SparkJob  # noqa: E402
from backend.apps.kafka_sink.models import SinkOffset  # noqa: E402
from backend.apps.pipelines.models import Pipeline  # noqa: E402
from backend.apps.pipelines.selectors import snapshot_by_number, stages_needed  # noqa: E402
from backend.apps.workspaces.models import ApiKey  # noqa: E402
from backend.apps.workspaces.services import key_hash  # noqa: E402
from backend.domain.message import Message  # noqa: E402
from backend.domain.stages import STAGES, Application, stages_in  # noqa: E402


def messages() -> list[dict[str, object]]:
    """For each, the pipeline's way and the next topic."""
    former = json.load(sys.stdin)
    known = []
    for record in former["messages"]:
        headers = [(name, text.encode()) for name, text in record["headers"].items()]
        message = Message.from_kafka(key=record["key"].encode(), value=record["value"].encode(), headers=headers)
        snapshot = snapshot_by_number(message.pipeline_id, message.version)
        topic, _ = message.advanced()
        known.append(
            {
                "is_read": any(stage.topic == record["topic"] for stage in STAGES),
                "next": topic,
                "outputs": [output.name for output in snapshot.config.outputs] if snapshot is not None else None,
            }
        )
    assert ApiKey.objects.filter(hash=key_hash(former["key"])).exists()
    return known


pipelines = [pipeline.published for pipeline in Pipeline.objects.order_by("name")]
print(
    json.dumps(
        {
            "secrets": connection_with_secrets(Connector.objects.get(name="Receiver")),
            "uses": [len(version.connectors) for version in pipelines],
            "steps": [step["type"] for version in pipelines for step in version.config.get("transforms", ())],
            "messages": messages(),
            "dead_letters": [bytes(letter.body).decode() for letter in DeadLetter.objects.filter(state="waiting")],
            "stages": SparkJob.objects.get().stage_names()
            == [stage.name for stage in stages_in(Application.DATA_PLANE)],
            "needed": sorted(stages_needed()),
            "position": SinkOffset.objects.get().next_offset,
        }
    )
)
