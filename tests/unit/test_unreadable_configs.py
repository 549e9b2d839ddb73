"""What the console makes of configurations that this release cannot read."""

from typing import Any

import pytest

from backend.apps.config_files import services as config_files
from backend.apps.pipelines.models import Pipeline, PipelineVersion
from backend.apps.pipelines.selectors import is_posted, pipeline_failure, unreadable
from backend.domain.errors import ConfigError
from backend.domain.pipeline import PipelineConfig


@pytest.mark.parametrize(
    ("config", "posted"),
    [
        ({}, True),
        ({"input": {}}, True),
        ({"input": {"type": "http"}}, True),
        ({"input": {"type": "connector"}}, False),
        ({"input": {"type": "of_a_later_release"}}, False),
        ({"input": {"type": ["http"]}}, False),
        ({"input": ["http"]}, False),
        ({"input": None}, False),
    ],
)
def test_whether_messages_are_posted_is_known_of_any_configuration(config: dict[str, Any], posted: bool) -> None:
    assert is_posted(config) is posted


def pipeline(*, failure: str = "", **published: Any) -> Pipeline:
    sound = {"config": {"index": [{"name": "a", "path": "a"}]}, "schema_version": PipelineConfig.schema_version}
    return Pipeline(published=PipelineVersion(**sound | published) if published else None, failure=failure)


def test_a_pipeline_says_why_its_published_version_cannot_run() -> None:
    assert pipeline_failure(pipeline()) == ""
    assert pipeline_failure(pipeline(number=1)) == ""
    assert "stored by a later release" in pipeline_failure(pipeline(schema_version=99))
    assert "transforms.0" in pipeline_failure(pipeline(config={"transforms": [{"type": "of_a_plugin"}]}))
    assert pipeline_failure(pipeline(failure="Its secret cannot be read.", number=1)) == "Its secret cannot be read."


def test_a_version_says_why_it_cannot_be_read() -> None:
    def failure(**stored: Any) -> str:
        sound = {"config": {"index": [{"name": "a", "path": "a"}]}, "schema_version": PipelineConfig.schema_version}
        return unreadable(PipelineVersion(**sound | stored).load)

    assert failure() == ""
    assert "stored by a later release" in failure(schema_version=99)
    assert "transforms.0" in failure(config={"transforms": [{"type": "of_a_plugin"}], "outputs": []})


def test_a_document_about_what_was_left_out_is_read_back() -> None:
    document = {"kind": "left_out", "object": "pipeline", "name": "Orders", "reason": "It was stored: later."}
    [parsed] = config_files.parse(config_files.dump([document]))
    assert parsed.model_dump() == document
    with pytest.raises(ConfigError):
        config_files.parse(config_files.dump([document | {"object": "alert"}]))
