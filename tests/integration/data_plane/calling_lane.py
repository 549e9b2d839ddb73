"""The transformer's or the slow lane's task as a process of its own, over pipelines that a file describes:
``python -m tests.integration.data_plane.calling_lane STAGE TOPIC PIPELINES STOP_PORT``. ``PIPELINES`` is JSON: for
each pipeline's id the URL of the API that the only step of its first version calls. Steps of later versions never
wait."""

import importlib
import json
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend.domain.connector import RuntimeConnector
from backend.domain.pipeline import PipelineConfig, PipelineSnapshot
from backend.domain.stages import Form, Stage
from backend.manager_api.client import RuntimePipeline
from backend.settings import Settings
from spark_jobs.streaming.lane import Handler, LaneServices
from spark_jobs.streaming.lane_task import run_slot

CONNECTOR = uuid.UUID("0198a7e5-0000-7000-8000-000000000000")
OUTPUT = {"name": "out", "connector": str(CONNECTOR)}
STEP_THAT_NEVER_WAITS = {"type": "set", "path": "version", "value": 2}


class Described:
    """Answers as the configuration client does."""

    def __init__(self, urls: dict[str, str]) -> None:
        self._pipelines = {
            (pipeline, version): self._runtime(pipeline, url, version)
            for pipeline, url in urls.items()
            for version in (1, 2)
        }

    async def runtime(self, pipeline_id: str, version: int) -> RuntimePipeline:
        return self._pipelines[pipeline_id, version]

    async def version(self, pipeline_id: str, version: int) -> PipelineSnapshot:
        return self._pipelines[pipeline_id, version].snapshot

    @staticmethod
    def _runtime(pipeline: str, url: str, version: int) -> RuntimePipeline:
        # Without a breaker nothing but the window's sharing keeps them apart.
        call = {
            "type": "call",
            "connector": str(CONNECTOR),
            "to": "answer",
            "timeout_seconds": 60,
            "concurrency": 200,
            "breaker": {"errors": 1000},
        }
        step = call if version == 1 else STEP_THAT_NEVER_WAITS
        config = PipelineConfig.model_validate({"transforms": [step], "outputs": [OUTPUT]})
        snapshot = PipelineSnapshot(
            id=uuid.UUID(pipeline), workspace_id=uuid.uuid4(), version=version, accepting=True, config=config
        )
        return RuntimePipeline.of(snapshot, {CONNECTOR: RuntimeConnector(type="http", connection={"url": url})})


if __name__ == "__main__":
    stage, topic, pipelines, stop_port = sys.argv[1:]
    described: Any = Described(json.loads(Path(pipelines).read_text()))
    module = importlib.import_module(f"spark_jobs.jobs.{stage}")
    lane = module.LANE

    def handler(services: LaneServices) -> Handler:
        made: Handler = lane.handler(replace(services, config=described))
        return made

    stage = Stage(f"fair-{topic}", Form.LANE, priority=1, topic=topic)
    module.LANE = replace(lane, stage=stage, handler=handler)  # type: ignore[attr-defined]
    run_slot(module.LANE, Settings(), ("127.0.0.1", int(stop_port)), 0, slots=1)
