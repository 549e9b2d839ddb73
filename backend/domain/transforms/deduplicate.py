from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from backend.domain import json
from backend.domain.paths import MISSING, FieldPath, get, parse_path
from backend.domain.transforms.base import (
    Memory,
    OnMissing,
    StepResources,
    WaitingStep,
    WaitingTransform,
    on_missing,
    transforms,
)


@transforms.register
class Deduplicate(WaitingTransform):
    """Drops messages that have been seen before, identified by some of their fields."""

    example = {"type": "deduplicate", "paths": ["order.id"], "seconds": 3600}

    type: Literal["deduplicate"] = "deduplicate"
    paths: list[FieldPath] = Field(
        min_length=1,
        max_length=20,
        description="Messages are duplicates if all of these fields are equal.",
    )
    seconds: int = Field(3600, ge=1, le=604_800, description="How long a message is remembered, in seconds.")
    on_missing: OnMissing = Field(
        "skip", description="A message that lacks one of them: continues, is dropped, or becomes a dead letter."
    )

    def compile_waiting(self) -> WaitingStep:
        fields = [(path, parse_path(path)) for path in self.paths]

        async def step(document: Any, resources: StepResources) -> Sequence[Any]:
            values = []
            for path, steps in fields:
                value = get(document, steps)
                if value is MISSING:
                    return on_missing(path, self.on_missing)(document)
                values.append(value)
            key = json.dumps([self.paths, values]).decode()
            return (document,) if await resources.get(Memory).first_seen(key, self.seconds) else ()

        return step
