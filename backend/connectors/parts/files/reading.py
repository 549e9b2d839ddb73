"""Files of a store as an input: new ones are read as rows, in bounded memory."""

import asyncio
import contextlib
import fnmatch
import heapq
import itertools
import logging
import math
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

from pydantic import AfterValidator, Field

from backend.connectors.parts.files.formats import FileFormat, Format, Row
from backend.connectors.parts.files.progress import Progress
from backend.connectors.parts.files.sources import StoredSource
from backend.connectors.parts.files.store import UNFINISHED, FileStore, StoredFile, limited
from backend.domain import json
from backend.domain.capabilities import Batch, Connection, DeliveryError, InputRecord, Options, ReadBatch
from backend.domain.markers import checked_marker, is_marker, marker_of
from backend.domain.model import ADVANCED, SAME_SOURCE

log = logging.getLogger(__name__)

_READ_SECONDS = 600.0
"""After this time, reading ends at the next batch: the breakpoint is kept when it ends."""
_FILES_AT_ONCE = 10_000
"""Files that are chosen of a listing, which is then repeated."""
_BATCH_ROWS = 1000
_BATCH_BYTES = 2 * 1024 * 1024

_ESTIMATE_SECONDS = 10.0

ConnectionT = TypeVar("ConnectionT", bound=Connection)


class _Listing(NamedTuple):
    files: list[StoredFile]
    """The first of the new files."""
    bytes: int
    """Of all new files."""


def _settle_seconds(default: int) -> Any:
    return Field(
        default,
        ge=0,
        le=86_400,
        description="Seconds for which a file has to be unchanged before it is read. Where files appear before they "
        "are complete, it has to be longer than the pauses in which they are written.",
        json_schema_extra=ADVANCED | SAME_SOURCE,
    )


class ReadFilesOptions(Options):
    """Files that become messages, one for each row."""

    format: FileFormat = Field(description="How the files are written.", examples=[{"type": "json_lines"}])
    prefix: str = Field(
        "",
        max_length=900,
        description="Only files whose names, with their folders, begin with this.",
        examples=["incoming/orders-"],
    )
    pattern: str = Field(
        "*",
        min_length=1,
        max_length=200,
        description="Only files whose names, without their folders, match this; * stands for any characters and ? for "
        "one.",
        examples=["*.csv.gz"],
    )
    bad_files: Literal["stop", "skip"] = Field(
        "stop",
        description="What happens at a file that cannot be read to its end: reading stops there until the file is "
        "replaced or removed, or goes on with the next file.",
        # It concerns the files that come: who gives up a bad one does not want all others once more.
        json_schema_extra=SAME_SOURCE,
    )
    settle_seconds: int = _settle_seconds(0)
    marker: Annotated[str, AfterValidator(checked_marker)] = Field(
        "",
        title="Marker file",
        max_length=100,
        description="Name of a file that has to lie beside a file before that is read. {name} is the file's name, "
        "{stem} the name without its extension. Markers are never read. Without it, files are read without a marker.",
        examples=["{name}.done", "_SUCCESS"],
        json_schema_extra=ADVANCED | SAME_SOURCE,
    )


class ReadAppearingOptions(ReadFilesOptions):
    """Files that become messages, one for each row."""

    settle_seconds: int = _settle_seconds(10)


class ReadFiles(ReadBatch[ConnectionT, ReadFilesOptions]):
    """Reads new files in the order of their times and names, and each from its first row to its last.

    At least once. A row has the same message ID whenever it is read: it follows from the file's name, its version and
    the number of the row. A file that is replaced is read again as a whole, with new IDs. Reading goes on in the midst
    of a file. A file that appears with an older time than others that were read is read as well, as long as their
    names have less than 64 KB (some hundred files); one that is older still is not."""

    options_model = ReadFilesOptions
    store_type: ClassVar[type[FileStore]]

    async def open(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="files")
        self._pattern = re.compile(fnmatch.translate(self.options.pattern))
        self._store = self.store_type(self.connection)
        self._listed: _Listing | None = None
        async with limited():
            await self._store.open()

    async def close(self) -> None:
        self._thread.shutdown(wait=False)
        await self._store.close()

    async def estimate(self, breakpoint: Any) -> int | None:
        """As the sizes of the new files and the beginning of the largest one let expect."""
        progress = Progress(breakpoint)
        self._listed = await self._next_files(progress)
        sample = max(self._listed.files, key=lambda file: file.size, default=None)
        if sample is None or not sample.size:
            return 0
        rows = await self._estimated_rows(sample)
        if rows is None:
            return None
        done = sum(map(progress.rows_of, self._listed.files))
        return max(0, round(rows * self._listed.bytes / sample.size) - done)

    async def read(self, breakpoint: Any) -> AsyncIterator[Batch]:
        """A fault ends the turn once something was read, so that the breakpoint is kept; the next turn raises it."""
        until = time.monotonic() + _READ_SECONDS
        progress, has_read = Progress(breakpoint), False
        try:
            async for records in self._read_all(progress):
                has_read = True
                yield Batch(records, progress.breakpoint())
                if time.monotonic() > until:
                    return
        except DeliveryError as error:
            if not has_read:
                raise
            log.warning("Reading ends early: %s", error)

    async def _read_all(self, progress: Progress) -> AsyncGenerator[list[InputRecord], None]:
        more = True
        while more:
            files = (self._listed or await self._next_files(progress)).files
            self._listed = None
            more = len(files) == _FILES_AT_ONCE
            for file in files:
                async with contextlib.aclosing(self._read_file(file, progress)) as batches:
                    async for records in batches:
                        yield records

    async def _next_files(self, progress: Progress) -> _Listing:
        """The first of the new files. Of a long listing only so many are in memory."""
        chosen: list[StoredFile] = []
        markers = await self._markers()
        size = 0
        seconds = self.options.settle_seconds
        settled = (time.time() - seconds) * 1_000_000 if seconds else math.inf
        async for listed in self._store.listed(self.options.prefix):
            file = self._marked(listed, markers)
            if file is not None and listed.time <= settled and self._fits(file.name) and progress.is_new(file):
                chosen.append(file)
                size += file.size
                if len(chosen) == 2 * _FILES_AT_ONCE:
                    chosen = heapq.nsmallest(_FILES_AT_ONCE, chosen, progress.order)
        return _Listing(heapq.nsmallest(_FILES_AT_ONCE, chosen, progress.order), size)

    async def _markers(self) -> dict[str, int]:
        """The times of the markers, by their names: all of them, since stores list in any order."""
        template = self.options.marker
        if not template:
            return {}
        prefix = self.options.prefix
        if not template.startswith("{name}"):  # it may not begin as its file does, but lies in the same folder
            folder, slash, _ = prefix.rpartition("/")
            prefix = folder + slash
        return {file.name: file.time async for file in self._store.listed(prefix) if is_marker(template, file.name)}

    def _marked(self, file: StoredFile, markers: dict[str, int]) -> StoredFile | None:
        """The file in its place among the others, which it has from the time on at which its marker is there: files
        whose markers appeared earlier may have been read before. None while there is no marker."""
        template = self.options.marker
        if not template:
            return file
        marked = None if is_marker(template, file.name) else markers.get(marker_of(template, file.name))
        return None if marked is None else file._replace(time=max(file.time, marked))

    async def _estimated_rows(self, file: StoredFile) -> float | None:
        """Nothing for a file that cannot be read, which reading will report."""
        async with self._store.opened(file) as read_range:
            source = StoredSource(read_range, file.size)
            estimate = asyncio.get_running_loop().run_in_executor(
                self._thread, _estimated_rows, self.options.format, source, file.size
            )
            try:
                async with asyncio.timeout(_ESTIMATE_SECONDS):
                    return await estimate
            except TimeoutError:
                return None
            finally:
                source.cancel()

    def _fits(self, name: str) -> bool:
        last = name.rpartition("/")[2]
        unfinished = name.startswith(UNFINISHED) or last.endswith(UNFINISHED)
        return bool(last) and not unfinished and self._pattern.match(last) is not None

    async def _read_file(self, file: StoredFile, progress: Progress) -> AsyncGenerator[list[InputRecord], None]:
        """The rest of one file."""
        number = progress.rows_of(file)
        try:
            async with contextlib.aclosing(self._rows(file, number)) as batches:
                async for rows in batches:
                    records = [self._record(file, number + place, row) for place, row in enumerate(rows, 1)]
                    number += len(rows)
                    progress.reached(file, number)
                    yield records
        except DeliveryError as error:
            if error.reason != "bad_file" or self.options.bad_files == "stop":
                raise
            log.warning("The rest of a file is skipped: %s", error)
        progress.finished(file)
        yield []  # so that it is remembered even if it has no rows

    def _record(self, file: StoredFile, number: int, row: Row) -> InputRecord:
        identity = json.dumps([file.name, file.version, number]).decode()
        fault = row.fault and f"File {file.name}, {row.fault}."
        return InputRecord(row.document, identity=identity, source=file.name, fault=fault)

    async def _rows(self, file: StoredFile, skip: int) -> AsyncGenerator[list[Row], None]:
        """Batches of rows, which are parsed in this reader's thread."""
        taken = skip
        async with self._store.opened(file) as read_range:
            source = StoredSource(read_range, file.size)
            rows = self.options.format.rows(source, skip)
            try:
                while True:
                    batch, fault = await asyncio.get_running_loop().run_in_executor(self._thread, _batch, rows)
                    taken += len(batch)
                    if batch:
                        yield batch
                    if fault is not None:
                        raise source.failure or _bad_file(file, taken, fault)
                    if not batch:
                        return
            finally:
                source.cancel()


def _batch(rows: Iterator[Row]) -> tuple[list[Row], Exception | None]:
    """The next rows; when one cannot be read, also the exception."""
    batch: list[Row] = []
    size = 0
    try:
        for row in itertools.islice(rows, _BATCH_ROWS):
            batch.append(row)
            size += len(row.document)
            if size >= _BATCH_BYTES:
                break
    except Exception as error:
        return batch, error
    return batch, None


def _estimated_rows(format: Format, source: StoredSource, size: int) -> float | None:
    try:
        return format.estimated_rows(source, size)
    except Exception as error:
        log.info("The rows of a file cannot be estimated: %s", error)
        return None


def _bad_file(file: StoredFile, row: int, error: Exception) -> DeliveryError:
    text = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
    return DeliveryError("bad_file", f"File {file.name} cannot be read after row {row}: {text}.", retryable=True)
