"""UUIDs in what others send."""

from typing import Any
from uuid import UUID


def parsed(text: Any) -> UUID | None:
    """The UUID that a text is; None for anything else."""
    try:
        return UUID(text) if isinstance(text, str) else None
    except ValueError:
        return None
