"""The delivering lane's task as a process of its own, over outputs that a file describes:
``python -m tests.integration.data_plane.fair_lane TOPIC OUTPUTS STOP_PORT``. ``OUTPUTS`` is JSON: for each
pipeline's id the URL of its output and the output's configuration."""

import json
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend.domain.connector import RuntimeConnector
from backend.domain.pipeline import OutputConfig, PipelineConfig, PipelineSnapshot
from backend.domain.stages import Form, Stage
from backend.manager_api.client import RuntimePipeline
from backend.settings import Settings
from spark_jobs.jobs.syndicating import LANE, SyndicatingHandler
from spark_jobs.streaming.lane import LaneServices
from spark_jobs.streaming.lane_task import run_slot


class Described:
    """Answers as the configuration client does."""

    def __init__(self, path: Path) -> None:
        self._pipelines = {
            pipeline: self._runtime(pipeline, url, config)
            for pipeline, (url, config) in json.loads(path.read_text()).items()
        }

    async def runtime(self, pipeline_id: str, version: int) -> RuntimePipeline:
        return self._pipelines[pipeline_id]

    def fresh_runtime(self, pipeline_id: str, version: int) -> RuntimePipeline:
        return self._pipelines[pipeline_id]

    @staticmethod
    def _runtime(pipeline: str, url: str, config: dict[str, Any]) -> RuntimePipeline:
        output = OutputConfig.model_validate({"name": "out", "connector": str(uuid.uuid4())} | config)
        snapshot = PipelineSnapshot(
            id=uuid.UUID(pipeline),
            workspace_id=uuid.uuid4(),
            version=1,
            accepting=True,
            config=PipelineConfig(outputs=[output]),
        )
        connector = RuntimeConnector(type="http", connection={"url": url})
        return RuntimePipeline.of(snapshot, {output.connector: connector})


if __name__ == "__main__":
    topic, outputs, stop_port = sys.argv[1:]
    described: Any = Described(Path(outputs))

    def handler(services: LaneServices) -> SyndicatingHandler:
        return SyndicatingHandler(replace(services, config=described))

    lane = replace(LANE, stage=Stage(f"fair-{topic}", Form.LANE, priority=1, topic=topic), handler=handler)
    run_slot(lane, Settings(), ("127.0.0.1", int(stop_port)), 0, slots=1)
