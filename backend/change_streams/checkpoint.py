"""How far a change stream has come, in the log of the table whose documents it sends: as application transactions,
committed at once and fenced as those of writers (``backend/collections/__init__.py``).

============================ ============================================================================
application id               version
============================ ============================================================================
``stream/step``              counts the commits
``stream/lower``             the time at which the interval of the last progress statement begins
``stream/timestamp``         the time of the last transaction, -1 before the first one
``stream/num_records``       how many updates it had
``stream/next``              the time of the next transaction
``stream/begin/P``           the offset of partition P at which the next transaction begins
``stream/end/P``             the offset at which it ends; the same as long as it is not planned
============================ ============================================================================
"""

from dataclasses import dataclass, field, replace
from typing import Protocol

from backend.collections.errors import FencedError
from backend.collections.table import Table
from backend.collections.writer import commit
from backend.domain.cdc import Progress

_PREFIX = "stream/"


@dataclass(frozen=True)
class Checkpoint:
    """``begin`` and ``end`` are offsets by partition."""

    step: int = 0
    lower: int = 0
    timestamp: int = -1
    num_records: int = 0
    next: int = 0
    begin: tuple[int, ...] = field(default=())
    end: tuple[int, ...] = field(default=())

    @property
    def upper(self) -> int:
        """Up to which time progress was stated, or is to be."""
        return self.timestamp + 1

    def progress(self) -> Progress | None:
        """The statement on the last transaction, None before the first one."""
        if self.timestamp < 0:
            return None
        counts = ((self.timestamp, self.num_records),) if self.num_records else ()
        return Progress(self.lower, self.upper, counts)

    @property
    def is_planned(self) -> bool:
        """Whether a transaction has begun: its updates may have been sent."""
        return self.begin != self.end

    def planned(self, end: tuple[int, ...], time: int) -> "Checkpoint":
        """With a transaction up to these offsets. Its time is never one of those before."""
        return replace(self, end=end, next=max(time, self.upper))

    def ended(self, num_records: int) -> "Checkpoint":
        """After the planned transaction, which had so many updates."""
        return replace(
            self, lower=self.upper, timestamp=self.next, num_records=num_records, next=self.next + 1, begin=self.end
        )


class Transactions(Protocol):
    """A table, or a reader of it."""

    @property
    def partitions(self) -> int: ...

    def transaction(self, app_id: str) -> int | None: ...


def load(table: Transactions) -> Checkpoint:
    """The checkpoint at the version that is open. Raises CollectionError."""

    def value(name: str, missing: int = 0) -> int:
        version = table.transaction(_PREFIX + name)
        return missing if version is None else version

    return Checkpoint(
        step=value("step"),
        lower=value("lower"),
        timestamp=value("timestamp", -1),
        num_records=value("num_records"),
        next=value("next"),
        begin=tuple(value(f"begin/{partition}") for partition in range(table.partitions)),
        end=tuple(value(f"end/{partition}") for partition in range(table.partitions)),
    )


def save(table: Table, checkpoint: Checkpoint) -> Checkpoint:
    """Commits what has become of a checkpoint that was loaded, and returns it as it is then. Raises FencedError when
    another process has committed one since, and other CollectionErrors."""
    from deltalake import Transaction

    table.refresh()
    if load(table).step != checkpoint.step:
        raise FencedError(f"Another process sends the changes of {table.location.uri}.")
    checkpoint = replace(checkpoint, step=checkpoint.step + 1)
    values = {
        "step": checkpoint.step,
        "lower": checkpoint.lower,
        "timestamp": checkpoint.timestamp,
        "num_records": checkpoint.num_records,
        "next": checkpoint.next,
        **{f"begin/{partition}": offset for partition, offset in enumerate(checkpoint.begin)},
        **{f"end/{partition}": offset for partition, offset in enumerate(checkpoint.end)},
    }
    commit(table, [], [Transaction(_PREFIX + name, value) for name, value in values.items()])
    return checkpoint
