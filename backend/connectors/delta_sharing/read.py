"""Shared tables as an input."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from backend.connectors.delta_sharing.connection import DeltaSharingConnection
from backend.connectors.delta_sharing.protocol import File, Listing, Provider, table_path
from backend.connectors.delta_sharing.rows import Document, Files
from backend.domain import json
from backend.domain.capabilities import Batch, DeliveryError, InputRecord, Options, ReadBatch
from backend.domain.model import ADVANCED, SAME_SOURCE, StrictModel
from backend.domain.reasons import Reason

_VERSIONS = 100
"""How many versions' changes are listed at a time."""
_CHANGE, _PREIMAGE = "_change_type", "update_preimage"


class Snapshot(StrictModel):
    """Reads all rows, once or again with each new version of the table."""

    type: Literal["snapshot"] = "snapshot"
    repeat: bool = Field(
        False,
        description="Read all rows again when the table has a new version.",
        json_schema_extra=SAME_SOURCE,
    )
    predicate_hints: list[str] = Field(
        default_factory=list,
        max_length=20,
        description="SQL conditions on columns, by which the server may leave out files that hold no matching row. "
        "Rows are not filtered one by one.",
        examples=[["date >= '2026-01-01'"]],
        json_schema_extra=ADVANCED,
    )


class Changes(StrictModel):
    """Reads inserted, updated and deleted rows by the table's change data feed, which must be enabled."""

    type: Literal["changes"] = "changes"
    from_version: int | None = Field(
        None,
        ge=0,
        description="First version whose changes are read. Without it, all rows are read first, then what changes.",
    )
    preimages: bool = Field(
        False,
        description="Also read rows as they were before an update.",
        json_schema_extra=ADVANCED,
    )


class DeltaSharingInputOptions(Options):
    """Rows of one table that become messages, JSON objects of their columns."""

    share: str = Field(min_length=1, description="Name of the share.", examples=["sales"])
    schema_name: str = Field(min_length=1, description="Name of the schema in the share.", examples=["default"])
    table: str = Field(min_length=1, description="Name of the table.", examples=["orders"])
    mode: Annotated[Snapshot | Changes, Field(discriminator="type")] = Field(
        default_factory=Snapshot, description="Which rows are read."
    )
    key: list[str] = Field(
        default_factory=list,
        max_length=20,
        description="Columns that identify a row; they also order messages. Without any, a row is identified by its "
        "place in its file, and messages are independent.",
        examples=[["id"]],
    )
    batch_rows: int = Field(
        500, ge=1, le=10_000, description="Most rows in a batch.", json_schema_extra=ADVANCED | SAME_SOURCE
    )


class DeltaSharingReadBatch(ReadBatch[DeltaSharingConnection, DeltaSharingInputOptions]):
    """Reads the Parquet files of a table's version, or of the changes since a version.

    At least once. Rows that are read again after an interruption become messages with the same IDs; a row of another
    version of the table is another message. Changes come in the order of versions, with `_change_type` (insert,
    update_postimage, delete), `_commit_version` and `_commit_timestamp`. Rows of the first load have `_change_type`
    insert. A table whose history is not shared is read anew from its present version when its first load is
    interrupted and it has changed meanwhile. Tables with deletion vectors or column mapping are not offered in the
    format that is asked for (Parquet)."""

    options_model = DeltaSharingInputOptions

    async def open(self) -> None:
        self._provider = Provider(self.connection)
        self._files = Files(self.connection)
        options = self.options
        self._table = table_path(options.share, options.schema_name, options.table)
        self._listed: Listing | None = None

    async def close(self) -> None:
        await self._files.close()
        await self._provider.close()

    def secrets(self) -> list[str]:
        return [*super().secrets(), self.connection.profile.token]

    async def estimate(self, breakpoint: Any) -> int | None:
        """As the statistics of a first load's files say."""
        state = breakpoint or {}
        if "version" in state and "at" not in state:
            return None
        if "changes" in state or self._first_version(state) is not None:
            return None
        self._listed = await self._snapshot(state)
        rows = [file.rows for file in self._listed.files]
        known = [number for number in rows if number is not None]
        if len(known) < len(rows):
            return None
        at = state.get("at") if state.get("version") == self._listed.version else None
        done = sum(file.rows or 0 for file in self._listed.files if at and file.place < at["place"])
        return max(0, sum(known) - done - (at["rows"] if at else 0))

    async def read(self, breakpoint: Any) -> AsyncIterator[Batch]:
        """Its state: the version up to which everything was read or, with ``at``, which is being read; ``changes``
        are the versions that are being read instead of a snapshot."""
        state = breakpoint or {}
        if (first := self._first_version(state)) is not None:
            state = {"version": first - 1}
        if "changes" not in state and ("at" in state or "version" not in state):
            async for batch in self._read_snapshot(state):
                state = batch.breakpoint
                yield batch
        if isinstance(self.options.mode, Changes):
            async for batch in self._read_changes(state):
                yield batch
        elif self.options.mode.repeat and await self._provider.version(self._table) > state["version"]:
            async for batch in self._read_snapshot({}):
                yield batch

    def _first_version(self, state: dict[str, Any]) -> int | None:
        """At the first time, with which version's changes reading begins without a snapshot."""
        mode = self.options.mode
        return mode.from_version if isinstance(mode, Changes) and not state else None

    async def _snapshot(self, state: dict[str, Any]) -> Listing:
        """The version whose reading was interrupted, if the server still has it, or the present one."""
        mode = self.options.mode
        hints = mode.predicate_hints if isinstance(mode, Snapshot) else ()
        present = await self._provider.snapshot(self._table, None, hints)
        if "at" not in state or state["version"] == present.version:
            return present
        try:
            return await self._provider.snapshot(self._table, state["version"], hints)
        except DeliveryError as error:
            if error.retryable:
                raise
            return present  # the history of the table is not shared

    async def _read_snapshot(self, state: dict[str, Any]) -> AsyncIterator[Batch]:
        listing = self._listed or await self._snapshot(state)
        self._listed = None
        version = listing.version
        at = state.get("at") if state.get("version") == version else None
        async for records, reached in self._read_files(listing, at):
            yield Batch(records, {"version": version, "at": reached})
        yield Batch((), {"version": version})

    async def _read_changes(self, state: dict[str, Any]) -> AsyncIterator[Batch]:
        present = await self._provider.version(self._table)
        done = state["version"]
        first, last = state.get("changes", (done + 1, min(present, done + _VERSIONS)))
        at = state.get("at")
        while first <= last:
            listing = await self._provider.changes(self._table, first, last)
            async for records, reached in self._read_files(listing, at):
                yield Batch(records, {"version": done, "changes": [first, last], "at": reached})
            done, at = last, None
            yield Batch((), {"version": done})
            first, last = done + 1, min(present, done + _VERSIONS)

    async def _read_files(
        self, listing: Listing, at: dict[str, Any] | None
    ) -> AsyncIterator[tuple[list[InputRecord], dict[str, Any]]]:
        """Records, and where reading goes on after them: a file's place, and how many of its rows were read."""
        for column in self.options.key:
            if listing.columns and column not in listing.columns:
                known = ", ".join(listing.columns)
                raise DeliveryError(
                    Reason.CONFIGURATION, f"The table has no column {column}; it has {known}.", retryable=False
                )
        for file in listing.files:
            if at is not None and file.place < at["place"]:
                continue
            rows = at["rows"] if at is not None and file.place == at["place"] else 0
            batches = self._files.documents(file, listing.columns, rows, self.options.batch_rows)
            async for documents in batches:
                records = [
                    self._record(file, rows + number, document)
                    for number, document in enumerate(documents)
                    if document.get(_CHANGE) != _PREIMAGE or self._wants_preimages
                ]
                rows += len(documents)
                yield records, {"place": file.place, "rows": rows}

    @property
    def _wants_preimages(self) -> bool:
        return isinstance(self.options.mode, Changes) and self.options.mode.preimages

    def _record(self, file: File, row: int, document: Document) -> InputRecord:
        if isinstance(self.options.mode, Changes):
            document.setdefault(_CHANGE, "insert" if file.change == "file" else file.change)
            document["_commit_version"] = file.version
            document["_commit_timestamp"] = _moment(file.timestamp)
        values = [document.get(column) for column in self.options.key]
        named = all(value is not None for value in values) and bool(values)
        place: list[Any] = [document.get(_CHANGE), *values] if named else [file.place[1:], row]
        options = self.options
        identity = [options.share, options.schema_name, options.table, file.version, *place]
        return InputRecord(
            json.dumps(document),
            key=(json.text(values[0]).encode() if len(values) == 1 else json.dumps(values)) if named else None,
            identity=json.dumps(identity).decode(),
        )


def _moment(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat().replace("+00:00", "Z")
