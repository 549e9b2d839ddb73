"""Which records of a JSON API are read: all of them, or those that are new."""

import hashlib
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace
from pydantic import Field

from backend.connectors.parts.raw_json import raw_at
from backend.domain import json
from backend.domain.model import ADVANCED, SAME_SOURCE, StrictModel
from backend.domain.paths import FieldPath, parse_path

_KNOWN = 1000
"""Records with the largest value that are remembered, so that they are not read a second time."""


class Validators(msgspec.Struct, frozen=True, omit_defaults=True):
    """By which an API tells whether an answer has changed since (RFC 9110, section 8.8). ``url`` is a digest of the
    address that was asked."""

    url: str
    etag: str = ""
    modified: str = ""


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where reading goes on: at a page of a run through the API.

    ``since`` and ``known`` come from the former runs: the largest value of a field, and which of the records that
    have it were read. ``largest`` and ``known_largest`` are the same including the run so far. ``digest`` is of the
    last page, ``finished`` and ``pause_until`` are Unix times. ``seen`` belongs to the last run if that had one page.
    """

    run: int = 1
    page: Any = None
    digest: str = ""
    since: Any = None
    known: tuple[str, ...] = ()
    largest: Any = None
    known_largest: tuple[str, ...] = ()
    finished: float = 0.0
    pause_until: float = 0.0
    seen: Validators | None = None

    @classmethod
    def of(cls, breakpoint: Any) -> "Progress":
        return msgspec.convert(breakpoint or {}, cls)

    def breakpoint(self) -> Any:
        return msgspec.to_builtins(self, builtin_types=(Decimal,))


class Everything(StrictModel):
    """Reads all records, once or again and again."""

    type: Literal["whole"] = "whole"
    repeat_minutes: int | None = Field(
        None,
        ge=1,
        description="Minutes after which all records are read again, as new messages. Without it they are read once.",
        json_schema_extra=SAME_SOURCE,
    )
    skip_unchanged: bool = Field(
        False,
        description="Whether nothing is read again while the API answers that its records have not changed since "
        "(ETag or Last-Modified), as long as one answer has all of them.",
        json_schema_extra=ADVANCED | SAME_SOURCE,
    )

    def begun(self, progress: Progress) -> Progress | None:
        """Where reading begins now; None when there is nothing to read."""
        if not progress.finished:
            return progress
        if self.repeat_minutes is None or time.time() < progress.finished + self.repeat_minutes * 60:
            return None
        return Progress(run=progress.run + 1, seen=progress.seen if self.skip_unchanged else None)

    def parameters(self, progress: Progress) -> dict[str, str]:
        """The query parameters that ask for the records."""
        return {}

    def taken(self, progress: Progress, records: Sequence[bytes]) -> tuple[Sequence[bytes], Progress]:
        """The records of a page that were not read before, and the progress with them."""
        return records, progress

    def ended(self, progress: Progress) -> Progress:
        """The progress after the last page."""
        return Progress(run=progress.run, finished=time.time())


class Incremental(StrictModel):
    """Reads new and changed records by a field that grows."""

    type: Literal["incremental"] = "incremental"
    field: FieldPath = Field(
        description="Field of a record whose value grows with each new or changed record.", examples=["updated_at"]
    )
    values: Literal["timestamp", "number", "text"] = Field(
        "timestamp", description="How values of the field are compared: as ISO 8601 times, as numbers or as text."
    )
    parameter: str = Field(
        "",
        max_length=200,
        description="Query parameter that asks for records from the largest value read so far. Without it all records "
        "are asked for, and those with a smaller value are left out.",
        examples=["updated_since"],
    )
    initial: str = Field("", description="Value of the parameter at first; without it, the parameter is left out.")

    def begun(self, progress: Progress) -> Progress | None:
        return progress

    def parameters(self, progress: Progress) -> dict[str, str]:
        value = self.initial if progress.since is None else json.text(progress.since)
        return {self.parameter: value} if self.parameter and value else {}

    def taken(self, progress: Progress, records: Sequence[bytes]) -> tuple[Sequence[bytes], Progress]:
        comparable, steps = _COMPARABLE[self.values], parse_path(self.field)
        since = comparable(progress.since)
        largest, known_largest = progress.largest, list(progress.known_largest)
        if largest is None:
            largest, known_largest = progress.since, list(progress.known)
        most = comparable(largest)
        known = set(progress.known)
        new: list[bytes] = []
        for record in records:
            written = raw_at(record, steps)
            plain = None if written is None else json.loads(written)
            value = comparable(plain)
            if value is None:  # cannot be compared, so it is taken
                new.append(record)
                continue
            record_digest = digest([record])
            is_known = value == since and record_digest in known
            if is_known or (since is not None and value < since and not self.parameter):
                continue
            new.append(record)
            if most is None or value > most:
                most, largest, known_largest = value, plain, []
            if value == most and len(known_largest) < _KNOWN:
                known_largest.append(record_digest)
        return new, replace(progress, largest=largest, known_largest=tuple(known_largest))

    def ended(self, progress: Progress) -> Progress:
        """The largest value is used only now: the records of a run need not be in its order."""
        return Progress(since=progress.largest, known=progress.known_largest)


Mode = Annotated[Everything | Incremental, Field(discriminator="type")]


def digest(records: Sequence[bytes]) -> str:
    return hashlib.sha256(b"\0".join(records)).hexdigest()[:16]


def _as_time(value: Any) -> datetime | None:
    try:
        parsed = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def _as_number(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        return None
    try:
        number = Decimal(value)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _as_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


_COMPARABLE: dict[str, Callable[[Any], Any]] = {"timestamp": _as_time, "number": _as_number, "text": _as_text}
