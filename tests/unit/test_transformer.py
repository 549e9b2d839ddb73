"""What the adapting lane makes of one message stays within the limits."""

import json
import tracemalloc
import uuid
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from backend.domain import limits, routing
from backend.domain.message import DEAD_REASON, REDELIVERY, REDELIVERY_OUTPUT, Message, new_message_id, utc_now
from backend.domain.pipeline import PipelineConfig, PipelineSnapshot
from backend.domain.reasons import Reason
from backend.manager_api.client import RuntimePipeline, UnknownPipelineError
from backend.settings import Settings
from spark_jobs.jobs.adapting_transformer import Transformer
from spark_jobs.streaming.lane import LaneServices

FIELDS = [{"name": f"text{number}", "path": "text"} for number in range(50)]
SPLIT = {"type": "split", "path": "items", "most": 10_000}


class Known:
    """The configuration client, answered from memory, and a recorder."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        config = PipelineConfig.model_validate({"transforms": [SPLIT], "index": FIELDS})
        self.snapshot = PipelineSnapshot(
            id=uuid.uuid4(), workspace_id=uuid.uuid4(), version=1, accepting=True, config=config
        )

    async def version(self, _key: str, _version: int) -> PipelineSnapshot:
        return self.snapshot

    async def runtime(self, _key: str, _version: int) -> RuntimePipeline:
        return RuntimePipeline.of(self.snapshot, {})

    def count(self, _pipeline: str, event: str) -> None:
        self.counts[event] += 1

    def error(self, *_: object, **__: object) -> None: ...


@pytest.mark.parametrize("text", [10, 1250])
async def test_indexes_of_all_messages_that_are_made_of_one_count(text: int) -> None:
    known = Known()
    services: Any = LaneServices(known, known, Settings(), 1, lambda _: 0)  # type: ignore[arg-type]
    transformer = Transformer(services)
    count = 5000
    body = json.dumps({"text": "x" * text, "items": list(range(count))}).encode()
    slip = (routing.FILTER, routing.ADAPTED)
    message = Message(new_message_id(), str(known.snapshot.id), 1, b"k", body, "application/json", utc_now(), slip)
    version = await transformer.version(message)
    tracemalloc.start()
    try:
        records = transformer.run(message, version)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        await transformer.close()
    assert peak < 3 * limits.TRANSACTION_BYTES
    if text == 10:
        assert [record.topic for record in records] == [routing.FILTER] * count
    else:
        [letter] = records
        assert dict(letter.headers)[DEAD_REASON].decode() == Reason.TOO_LARGE
        assert letter.value == body


@pytest.mark.parametrize(
    ("body", "counted"),
    [
        (b'{"items": [1, 2]}', {"adapting.redelivered": 1, "adapting.transformed": 1}),
        (b'{"items": []}', {"adapting.redelivered": 1, "adapting.dropped": 1, "step.1.dropped": 1}),
        (b"no JSON", {"adapting.redelivered": 1, "adapting.dead": 1}),
    ],
)
async def test_a_redelivered_dead_letter_counts_as_handled_again_whatever_becomes_of_it(
    body: bytes, counted: dict[str, int]
) -> None:
    known = Known()
    services: Any = LaneServices(known, known, Settings(), 1, lambda _: 0)  # type: ignore[arg-type]
    transformer = Transformer(services)
    marks = {REDELIVERY: "1", REDELIVERY_OUTPUT: ""}
    slip = (routing.ADAPTED,)
    message = Message(new_message_id(), str(known.snapshot.id), 1, b"k", body, "application/json", utc_now(), slip)
    try:
        version = await transformer.version(message)
        transformer.run(message, version)
        assert "adapting.redelivered" not in known.counts
        known.counts.clear()
        again = replace(message, extra=marks)
        transformer.run(again, version)
        assert known.counts == counted
        known.counts.clear()
        await transformer.run_waiting(again, version)
        assert known.counts["adapting.redelivered"] == 1
        known.counts.clear()
        transformer.without_configuration(again, UnknownPipelineError("There is none."))
        transformer.saturated(again, 0.0)
        assert known.counts == {"adapting.dead": 2, "adapting.redelivered": 2}
    finally:
        await transformer.close()
