"""What keeps a collection small and quick: merging of small files, reduction to the last document of each key,
retention, reset, and the removal of unused files.

Each change is one commit that moves the application transaction ``files/P`` of the partitions whose files it replaces,
so that of two changes at the same time one is refused. Appends do not move it: they never wait for any of this.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.collections.documents import arrow_schema, encode_table
from backend.collections.errors import FencedError
from backend.collections.table import EPOCH, Segment, Snapshot, Table, as_collection_errors, end_id, epoch_id
from backend.collections.writer import add_data, commit

_ATTEMPTS = 20
_MERGED_BYTES = 64 * 1024 * 1024
_SMALL_FILES = 8
"""So many neighbours are merged at once, so that a document is seldom written again."""
_FILES_OF_RETENTION = 20
"""A merged file is at most this part of what retention keeps, since only whole files are removed."""
_HOUR = 3_600_000


@dataclass(frozen=True)
class Retention:
    """How long documents are kept: hours since they were appended, and bytes of all files; None without a limit."""

    hours: int | None = None
    bytes: int | None = None


def files_id(partition: int) -> str:
    """The application id whose version counts the changes of a partition's files other than appends."""
    return f"files/{partition}"


def reduced_id(partition: int) -> str:
    """The application id whose version is the offset up to which a partition was reduced to the last documents."""
    return f"reduced/{partition}"


def reset(table: Table) -> int:
    """Removes all documents and raises the leader epoch, which is returned. Offsets go on where they were. Raises
    CollectionError."""
    for _ in range(_ATTEMPTS):
        table.refresh()
        snapshot = table.snapshot()
        epoch = snapshot.epoch + 1
        # The ends do not move, but an append at the same time is refused, and comes after the reset.
        moved = {EPOCH: epoch}
        for partition, end in enumerate(snapshot.ends):
            moved |= {end_id(partition): end, epoch_id(epoch, partition): end}
        try:
            _replace(table, dict(enumerate(snapshot.segments)), [], moved)
        except FencedError:
            continue
        return epoch
    raise FencedError(f"{table.location.uri} is written without pause, so that it could not be reset: try it again.")


def apply_retention(
    table: Table, retention: Retention, now: float | None = None, *, needed: Mapping[int, int] | None = None
) -> int:
    """Removes whole files, the oldest of each partition first, that hold nothing to keep; how many. By partition,
    ``needed`` is an offset from which on everything is kept. Raises CollectionError, FencedError when another change
    was made at the same time."""
    table.refresh()
    snapshot = table.snapshot()
    removed = expired(snapshot, retention, int((now or time.time()) * 1000), needed or {})
    if not any(removed.values()):
        return 0
    # An end is moved to where it is, so that a partition without files has it; see Table.snapshot.
    ends = {
        end_id(partition): snapshot.ends[partition] for partition in removed if _empties(snapshot, removed, partition)
    }
    _replace(table, removed, [], ends)
    return sum(map(len, removed.values()))


def remove_before(table: Table, offsets: Sequence[int]) -> int:
    """Removes whole files with offsets before these, by partition; how many. Raises CollectionError, FencedError when
    another change was made at the same time."""
    table.refresh()
    snapshot = table.snapshot()
    read = {
        partition: [segment for segment in segments if segment.last < offset]
        for partition, (segments, offset) in enumerate(zip(snapshot.segments, offsets, strict=False))
    }
    removed = {partition: segments for partition, segments in read.items() if segments}
    if removed:
        ends = {end_id(number): snapshot.ends[number] for number in removed if _empties(snapshot, removed, number)}
        _replace(table, removed, [], ends)
    return sum(map(len, removed.values()))


def reduce_to_last(table: Table, offsets: Sequence[int], *, deletions_until: int) -> int:
    """Among the documents before these offsets, by partition, keeps only the last one of each key, and no deletion that
    is older than that time in milliseconds since 1970. How many documents are removed. The others keep their offsets,
    and the log keeps its start: the last document before the offset stays in any case. Raises CollectionError,
    FencedError when another change was made at the same time."""
    table.refresh()
    snapshot = table.snapshot()
    count = 0
    for partition, (segments, offset) in enumerate(zip(snapshot.segments, offsets, strict=False)):
        run = [segment for segment in segments if segment.last < offset]
        reduced_to = table.transaction(reduced_id(partition)) or 0
        new = sum(segment.documents for segment in run if segment.last >= reduced_to)
        # What was reduced is written again only when there is half as much that was not.
        if not new or new * 2 < sum(segment.documents for segment in run if segment.last < reduced_to):
            continue
        masks = _last_by_key(table, run, deletions_until)
        added = list(_reduced(table, partition, run, masks))
        _replace(table, {partition: run}, added, {reduced_id(partition): run[-1].last + 1})
        table.refresh()
        count += sum(mask.count(False) for mask in masks)
    return count


def _last_by_key(table: Table, run: Sequence[Segment], deletions_until: int) -> list[list[bool]]:
    """For each file, which of its documents are kept."""
    seen: set[bytes] = set()
    masks: list[list[bool]] = []
    for segment in reversed(run):
        rows = _rows(table, segment, ["offset", "timestamp", "key", "deleted"])
        documents = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        mask = []
        for offset, timestamp, key, deleted in reversed(documents):
            is_last = key is None or key not in seen
            if key is not None:
                seen.add(key)
            is_over = deleted and timestamp.timestamp() * 1000 < deletions_until
            mask.append(offset == run[-1].last or (is_last and not is_over))
        masks.append(mask[::-1])
    return masks[::-1]


def _reduced(table: Table, partition: int, run: Sequence[Segment], masks: Sequence[list[bool]]) -> Iterator[Any]:
    """Writes what is kept of the files. The new files together stand for the same offsets."""
    import pyarrow as pa

    kept: list[Any] = []
    first = run[0].first
    for segment, mask in zip(run, masks, strict=True):
        kept.append(_rows(table, segment).filter(pa.array(mask)))
        if segment is run[-1] or sum(rows.nbytes for rows in kept) >= _MERGED_BYTES:
            rows = pa.concat_tables(kept)
            if rows.num_rows:
                yield _add_rows(table, partition, rows, first, segment.last, is_new=True)
                kept, first = [], segment.last + 1


def expired(snapshot: Snapshot, retention: Retention, now: int, needed: Mapping[int, int]) -> dict[int, list[Segment]]:
    """The files that retention removes at that time, in milliseconds since 1970; none with ``needed`` offsets."""
    removed: dict[int, list[Segment]] = {}
    by_age = sorted(
        (
            (segment.newest, partition, segment)
            for partition, segments in enumerate(snapshot.segments)
            for segment in segments
        ),
    )
    size = sum(segment.bytes for _, _, segment in by_age)
    for newest, partition, segment in by_age:
        is_old = retention.hours is not None and newest < now - retention.hours * _HOUR
        is_too_much = retention.bytes is not None and size > retention.bytes
        if not (is_old or is_too_much):
            break
        if segment.last >= needed.get(partition, segment.last + 1):
            continue
        removed.setdefault(partition, []).append(segment)
        size -= segment.bytes
    return removed


def _empties(snapshot: Snapshot, removed: dict[int, list[Segment]], partition: int) -> bool:
    return len(removed[partition]) == len(snapshot.segments[partition])


def merge(table: Table, retention: Retention) -> int:
    """Merges small files that are neighbours; how many files became one of fewer. Raises CollectionError, FencedError
    when another change was made at the same time."""
    table.refresh()
    merged = 0
    snapshot = table.snapshot()
    for partition, segments in enumerate(snapshot.segments):
        for run in mergeable(segments, retention):
            _replace(table, {partition: run}, [_merged(table, partition, run)], {}, changes_data=False)
            table.refresh()
            merged += len(run)
    return merged


def mergeable(segments: Sequence[Segment], retention: Retention) -> list[list[Segment]]:
    """Runs of neighbours that are to become one file each."""
    limit = min(_MERGED_BYTES, (retention.bytes or _MERGED_BYTES * _FILES_OF_RETENTION) // _FILES_OF_RETENTION)
    span = (retention.hours or 24 * 365 * 100) * _HOUR // _FILES_OF_RETENTION
    runs: list[list[Segment]] = [[]]
    for segment in segments:
        run = runs[-1]
        size = sum(one.bytes for one in run) + segment.bytes
        if run and (size > limit or segment.newest - run[0].oldest > span):
            runs.append(run := [])
        run.append(segment)
    return [run for run in map(_worthwhile, runs) if len(run) >= _SMALL_FILES]


def _worthwhile(run: list[Segment]) -> list[Segment]:
    """Without the files at its beginning that are larger than all that follows: those are not written again for it."""
    while run and run[0].bytes > sum(segment.bytes for segment in run[1:]):
        run = run[1:]
    return run


def _merged(table: Table, partition: int, run: Sequence[Segment]) -> Any:
    import pyarrow as pa

    rows = pa.concat_tables([_rows(table, segment) for segment in run])
    return _add_rows(table, partition, rows, run[0].first, run[-1].last, is_new=False)


def _rows(table: Table, segment: Segment, columns: list[str] | None = None) -> Any:
    import pyarrow.parquet as pq

    with as_collection_errors(table.location):
        return pq.read_table(segment.path, filesystem=table.files, partitioning=None, columns=columns)


def _add_rows(table: Table, partition: int, rows: Any, first: int, last: int, *, is_new: bool) -> Any:
    """Adds a file of these rows, which stands for the offsets from ``first`` to ``last``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = rows.cast(arrow_schema(partition=False))
    times = pc.min_max(rows.column("timestamp").cast(pa.int64())).as_py()
    oldest, newest = times["min"] // 1000, times["max"] // 1000
    described = Segment(first, last, "", 0, rows.num_rows, oldest, newest)
    return add_data(table, partition, encode_table(rows), described, is_new=is_new)


def _replace(
    table: Table,
    removed: Mapping[int, Sequence[Segment]],
    added: Sequence[Any],
    moved: Mapping[str, int],
    *,
    changes_data: bool = True,
) -> None:
    """Commits a change of the files. ``moved`` are further application transactions."""
    from deltalake import Transaction
    from deltalake.transaction import RemoveAction

    now = time.time_ns() // 1_000_000
    actions = list(added)
    transactions = [Transaction(app_id, version) for app_id, version in moved.items()]
    for partition, segments in removed.items():
        values: dict[str, str | None] = {"partition": str(partition)}
        actions += [RemoveAction(segment.path, changes_data, now, segment.bytes, values) for segment in segments]
        app_id = files_id(partition)
        transactions.append(Transaction(app_id, (table.transaction(app_id) or 0) + 1))
    commit(table, actions, transactions)


def vacuum(table: Table) -> int:
    """Deletes files that have been unused for a day, among them those that a killed writer left; how many. Until then
    a reader of an earlier version finds them. Raises CollectionError."""
    with as_collection_errors(table.location):
        table.delta.update_incremental()
        return len(table.delta.vacuum(dry_run=False, full=True))
