"""How messages are gathered for a receiver that takes many at a time."""

from pydantic import ConfigDict, Field

from backend.domain.model import StrictModel


class BatchPolicy(StrictModel):
    """A batch is sent when one of these is reached."""

    model_config = ConfigDict(title="Batch")

    messages: int = Field(100, ge=1, le=2000, description="Most messages in a batch.")
    bytes: int = Field(1024 * 1024, ge=1, le=16 * 1024 * 1024, description="Most bytes of message bodies in a batch.")
    seconds: float = Field(
        1.0, gt=0, le=60, description="Longest time that a message waits for its batch to fill, in seconds."
    )
