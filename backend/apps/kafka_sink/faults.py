"""Tells records that can never be written from a database that cannot be reached, so that neither is taken for the
other."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec
from django.db import DatabaseError, DataError, IntegrityError, InterfaceError

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_LIMIT_EXCEEDED = "54"
"""The class of SQLSTATE of values beyond PostgreSQL's own limits; psycopg takes it for a fault of operation."""

_FROM_CONTENTS = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, msgspec.MsgspecError,
)  # fmt: skip
"""What reading a record's contents raises."""


def is_data_fault(error: Exception) -> bool:
    """Whether writing the same data again would fail again, while other data could be written.

    Everything else that the database reports is an outage to wait for: lost connections, deadlocks, a full disk, and
    also a missing table, which no record is to blame for.
    """
    if isinstance(error, DataError | IntegrityError):
        return True
    if isinstance(error, DatabaseError | InterfaceError):
        return (getattr(error.__cause__, "sqlstate", None) or "").startswith(_LIMIT_EXCEEDED)
    return isinstance(error, _FROM_CONTENTS)


def write_good(
    items: Sequence[T], write: Callable[[Sequence[T]], None], set_aside: Callable[[T, Exception], None]
) -> None:
    """Writes the items in order. A batch with a faulty item is halved until the item is alone, and that is set aside.

    ``write`` must write all or nothing. Raises what it raises when the data are not at fault.
    """
    try:
        write(items)
    except Exception as error:
        if not is_data_fault(error):
            raise
        if len(items) == 1:
            set_aside(items[0], error)
            return
        middle = len(items) // 2
        write_good(items[:middle], write, set_aside)
        write_good(items[middle:], write, set_aside)


def moment_of(seconds: float) -> datetime:
    """The Unix time as a datetime. Raises OverflowError and ValueError, where ``fromtimestamp`` also raises OSError,
    which is no data fault."""
    return _EPOCH + timedelta(seconds=seconds)


def storable(text: str) -> str:
    """The text without what PostgreSQL cannot store: NUL and halves of surrogate pairs."""
    if text.isascii():
        return text.replace("\x00", "")
    return text.encode(errors="replace").decode().replace("\x00", "")
