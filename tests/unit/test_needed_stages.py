"""Which stages the messages of a pipeline need."""

from typing import Any
from uuid import UUID

import pytest

from backend.domain.demand import stages_of
from backend.domain.pipeline import PipelineConfig

RECEIVER, STORE, TABLE, BROKER, JOURNAL, GONE = (f"0199d1a0-0000-7000-8000-00000000000{n}" for n in range(6))
TYPES = {
    UUID(RECEIVER): "http",
    UUID(STORE): "local_files",
    UUID(TABLE): "collection",
    UUID(BROKER): "kafka",
    UUID(JOURNAL): "toy_journal",
}
ALWAYS = {"syndicating"}
DELIVERED = {"outputs": [{"name": "erp", "connector": RECEIVER}]}
SET = {"type": "set", "path": "source", "value": "erp"}
CALL = {"type": "call", "name": "api", "connector": RECEIVER, "to": "answer"}
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}


def needed(**config: Any) -> set[str]:
    return {stage.name for stage in stages_of(PipelineConfig.model_validate(DELIVERED | config), TYPES)}


def test_what_is_only_delivered_needs_no_more_than_what_always_runs() -> None:
    assert needed() == {"adapting", "syndicating"}


def test_transforms() -> None:
    assert needed(transforms=[SET]) == {"adapting_transformer", "syndicating"}


@pytest.mark.parametrize(
    "step", [CALL, {"type": "deduplicate", "paths": ["id"], "seconds": 60}], ids=lambda step: step["type"]
)
def test_steps_that_wait_may_take_the_slow_lane(step: dict[str, Any]) -> None:
    assert needed(transforms=[step]) == {"adapting_transformer", "adapting_slow", "syndicating"}


def test_indexed_fields() -> None:
    index = [{"name": "country", "path": "country"}]
    assert needed(index=index) == {"adapting", "filtering", "syndicating"}
    assert needed(index=index, outputs=[]) == {"adapting", "filtering"}


def test_filtered_messages_are_adapted_already() -> None:
    condition = {"type": "equals", "field": "country", "value": "BR"}
    source = {"type": "filter", "condition": condition}
    assert needed(input=source) == {"syndicating"}
    assert needed(input=source, transforms=[SET]) == {"adapting_transformer", "syndicating"}


def test_stream_processing_needs_the_lane_that_writes_avro() -> None:
    processing = {"avro_schema": AVRO}
    assert needed(stream_processing=processing) == {"adapting_transformer", "syndicating"}


def test_outputs_that_store_files_or_keep_collections() -> None:
    assert needed(outputs=[{"name": "files", "connector": STORE}]) == {"adapting", "syndicating", "exporter"}
    assert needed(outputs=[{"name": "kept", "connector": TABLE}]) == {"adapting", "syndicating", "collections"}


def test_an_output_that_may_be_anything_may_need_either() -> None:
    assert needed(outputs=[{"name": "lost", "connector": GONE}]) == {
        *("adapting", "syndicating", "exporter", "collections")
    }


def test_inputs_that_are_read() -> None:
    streamed = {"type": "connector", "connector": BROKER, "options": {"topic": "orders"}}
    assert needed(input=streamed) == {"input_streaming", "adapting", "syndicating"}
    in_batches = {"type": "connector", "connector": STORE}
    assert needed(input=in_batches) == {"input_batching", "adapting", "syndicating"}
    unknown = {"type": "connector", "connector": GONE}
    assert needed(input=unknown) == {"input_batching", "input_streaming", "adapting", "syndicating"}


def test_an_input_that_can_be_read_both_ways_needs_the_stage_of_its_mode() -> None:
    journal = {"type": "connector", "connector": JOURNAL}
    assert needed(input=journal) == {"input_batching", "adapting", "syndicating"}
    assert needed(input=journal | {"mode": "stream"}) == {"input_streaming", "adapting", "syndicating"}
