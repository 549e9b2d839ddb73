"""What the adapting lane makes of one message stays within the limits."""

import json
import tracemalloc
import uuid
from typing import Any

import pytest

from backend.domain import limits, routing
from backend.domain.message import DEAD_REASON, Message, new_message_id, utc_now
from backend.domain.pipeline import PipelineConfig, PipelineSnapshot
from backend.domain.reasons import Reason
from backend.settings import Settings
from spark_jobs.jobs.adapting_transformer import Transformer
from spark_jobs.streaming.lane import LaneServices

FIELDS = [{"name": f"text{number}", "path": "text"} for number in range(50)]
SPLIT = {"type": "split", "path": "items", "most": 10_000}


class Known:
    """The configuration client, answered from memory, and a recorder of nothing."""

    def __init__(self) -> None:
        config = PipelineConfig.model_validate({"transforms": [SPLIT], "index": FIELDS})
        self.snapshot = PipelineSnapshot(
            id=uuid.uuid4(), workspace_id=uuid.uuid4(), version=1, accepting=True, config=config
        )

    async def version(self, _key: str, _version: int) -> PipelineSnapshot:
        return self.snapshot

    def count(self, *_: object) -> None: ...

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
