from typing import Literal

from pydantic import Field

from backend.domain.capabilities import Verify
from backend.domain.inputs.base import OrderedInput, inputs
from backend.domain.model import ADVANCED
from backend.domain.uses import Use


class Verification(Use):
    """A connector that verifies each request."""

    capabilities = (Verify,)

    @property
    def place(self) -> str:
        return "input.verification"


@inputs.register
class HttpInput(OrderedInput):
    """Messages are posted to the pipeline's own address."""

    example = {"type": "http", "ordering_key": "order.id"}
    posted = True

    type: Literal["http"] = "http"
    verification: Verification | None = Field(
        None,
        description="Verifies each request, for senders that cannot use an API key. Without it, an API key of the "
        "workspace is required.",
    )
    deduplicate_seconds: int = Field(
        86_400,
        ge=0,
        le=604_800,
        description="How long a repeated Idempotency-Key or webhook-id is recognised, in seconds; 0 turns it off.",
        json_schema_extra=ADVANCED,
    )
