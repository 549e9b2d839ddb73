"""The Delta table of a collection: what it holds at one version."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from backend.collections.documents import arrow_schema
from backend.collections.errors import CollectionMissingError, CollectionUnavailableError, FencedError
from backend.collections.location import Location

PARTITIONS = "headrace.partitions"
"""The table property that holds the number of partitions."""
EPOCH = "epoch"

_LOG_KEPT = "interval 1 days"
_REMOVED_FILES_KEPT = "interval 1 days"


def end_id(partition: int) -> str:
    """The application id whose version is the partition's end offset."""
    return f"end/{partition}"


def source_id(source: str) -> str:
    """The application id whose version is the next position of a source."""
    return f"source/{source}"


def epoch_id(epoch: int, partition: int) -> str:
    """The application id whose version is the offset at which an epoch began."""
    return f"{EPOCH}/{epoch}/{partition}"


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A data file: the documents of one partition from ``first`` to ``last``, both included. The content of a path
    never changes. Times are in milliseconds since 1970, ``bytes`` the size of the file."""

    first: int
    last: int
    path: str
    bytes: int
    documents: int
    oldest: int
    newest: int


@dataclass(frozen=True)
class Snapshot:
    """A table at one version. ``segments`` are by partition, in the order of their offsets, and never overlap."""

    version: int
    partitions: int
    epoch: int
    ends: tuple[int, ...]
    segments: tuple[tuple[Segment, ...], ...] = field(repr=False)

    def start(self, partition: int) -> int:
        """The offset of the first document that is kept; the end when there is none."""
        segments = self.segments[partition]
        return segments[0].first if segments else self.ends[partition]

    def offsets_at(self, timestamp: int) -> list[int]:
        """By partition, an offset before which everything is older than this time; only whole files count."""
        return [
            max((segment.last + 1 for segment in segments if segment.newest < timestamp), default=0)
            for segments in self.segments
        ]


def missing(location: Location) -> CollectionMissingError:
    """The table was deleted, or never made."""
    return CollectionMissingError(f"There is no collection at {location.uri}.")


@contextmanager
def as_collection_errors(location: Location) -> Iterator[None]:
    """Errors of delta-rs and of files as errors of collections."""
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

    try:
        yield
    except TableNotFoundError:
        raise missing(location) from None
    except CommitFailedError as error:
        raise FencedError(f"Another writer has written to {location.uri}: {error}") from None
    except (DeltaError, OSError) as error:
        raise CollectionUnavailableError(f"{location.uri} cannot be used: {error}") from None


class Table:
    """An open table. Used by one thread at a time; all methods raise CollectionError."""

    def __init__(self, location: Location) -> None:
        """Raises CollectionMissingError when there is no table."""
        from deltalake import DeltaTable

        self.location = location
        with as_collection_errors(location):
            self.delta = DeltaTable(location.uri, storage_options=dict(location.options))
            self.files = location.files()
            self.partitions = int(self.delta.metadata().configuration[PARTITIONS])

    @classmethod
    def create(cls, location: Location, *, partitions: int, name: str) -> "Table":
        """Makes the table unless it exists; its partitions stay what they are."""
        from deltalake import DeltaTable

        with as_collection_errors(location):
            if location.folder is not None:
                location.folder.mkdir(parents=True, exist_ok=True)
            DeltaTable.create(
                location.uri,
                arrow_schema(partition=True),
                mode="ignore",
                partition_by=["partition"],
                name=name,
                configuration={
                    PARTITIONS: str(partitions),
                    "delta.checkpointInterval": "100",
                    "delta.logRetentionDuration": _LOG_KEPT,
                    "delta.deletedFileRetentionDuration": _REMOVED_FILES_KEPT,
                    # Only these have statistics that are of use.
                    "delta.dataSkippingStatsColumns": "offset,timestamp",
                },
                storage_options=dict(location.options),
                raise_if_key_not_exists=False,
            )
        return cls(location)

    def refresh(self) -> bool:
        """Goes on to the newest version. Whether that is another one."""
        version = self.delta.version()
        with as_collection_errors(self.location):
            self._load()
        if self.delta.version() != version:
            return True
        if self.location.folder is not None and not self.location.folder.exists():
            raise missing(self.location)
        return False

    def configure(self, *, partitions: int) -> None:
        """Raises the number of partitions; it never falls. Raises FencedError."""
        if partitions > self.partitions:
            with as_collection_errors(self.location):
                properties = {PARTITIONS: str(partitions)}
                self.delta.alter.set_table_properties(properties, raise_if_not_exists=False)
                self._load()

    def _load(self) -> None:
        self.delta.update_incremental()
        self.partitions = int(self.delta.metadata().configuration[PARTITIONS])

    def transaction(self, app_id: str) -> int | None:
        """The version of an application transaction, None when there was none."""
        with as_collection_errors(self.location):
            return self.delta.transaction_version(app_id)

    def snapshot(self) -> Snapshot:
        """What the table holds at the version that is open."""
        segments = self._segments()
        # A partition that has lost its last files, to a reset or by retention, still knows its end.
        ends = [
            files[-1].last + 1 if files else self.transaction(end_id(number)) or 0
            for number, files in enumerate(segments)
        ]
        return Snapshot(
            version=self.delta.version(),
            partitions=self.partitions,
            epoch=self.transaction(EPOCH) or 0,
            ends=tuple(ends),
            segments=tuple(tuple(files) for files in segments),
        )

    def _segments(self) -> list[list[Segment]]:
        import pyarrow as pa

        with as_collection_errors(self.location):
            actions = pa.table(self.delta.get_add_actions(flatten=True))
        segments: list[list[Segment]] = [[] for _ in range(self.partitions)]
        if not actions.num_rows:
            return segments
        times = [actions.column(f"{end}.timestamp").cast(pa.int64()).to_pylist() for end in ("min", "max")]
        names = ("partition.partition", "min.offset", "max.offset", "path", "size_bytes", "num_records")
        columns = [actions.column(name).to_pylist() for name in names]
        for partition, first, last, path, size, documents, oldest, newest in zip(*columns, *times, strict=True):
            segments[partition].append(Segment(first, last, path, size, documents, oldest // 1000, newest // 1000))
        for files in segments:
            files.sort()
        return segments
