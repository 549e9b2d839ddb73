"""Writes one export: from staged parts to a file in its store.

Each step is recorded by the manager before the next one, so that another task can go on after a crash:

1. ``begin`` an upload, and record its handle. A later writer aborts it and begins anew.
2. Write everything, and record the manifest. From here on a later writer only commits.
3. ``commit``, which may be repeated; store the manifest and the marker beside the file, which may be repeated, too; and
   complete the export.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from backend.domain import json
from backend.domain.capabilities import DeliveryError, Export, internal_error
from backend.domain.export_policy import ExportPolicy
from backend.domain.markers import marker_of
from backend.domain.message import utc_now
from backend.domain.pipeline import RuntimeOutput
from backend.domain.reasons import Reason
from backend.exports.documents import Column, Columns, Document, documents, schema_of
from backend.exports.formats import Encoder, encoder_for
from backend.exports.staging import decode_part
from backend.exports.staging_store import StagingStore
from backend.exports.upload import Upload, patiently
from backend.manager_api.client import ConfigClient, ConfigUnavailableError, UnknownPipelineError
from backend.manager_api.exports import ExportClient, ExportLostError, HeldExport, ManagerUnavailableError, Slice
from backend.telemetry.recorder import Recorder

log = logging.getLogger(__name__)

_ROWS_AT_A_TIME = 1000
_SHOWN_ROWS = 10
_SHOWN_COLUMNS = 30
_SHOWN_CHARACTERS = 200
_ABANDONED_SECONDS = 86_400.0
"""An upload that nothing was written to for so long, and that no export has recorded, will not be gone on with."""
_SWEEP_AGAIN_SECONDS = 86_400.0
_SWEEP_SECONDS = 60.0
"""A file does not wait longer for a sweep before it."""
_UPLOADS = 100


class ExportWriter:
    """Used on one event loop. ``at`` is told the name of each step that is done."""

    def __init__(
        self,
        *,
        client: ExportClient,
        config: ConfigClient,
        staging: StagingStore,
        recorder: Recorder,
        at: Callable[[str], None],
    ) -> None:
        self._client = client
        self._config = config
        self._staging = staging
        self._recorder = recorder
        self._at = at
        self._swept: dict[tuple[str, str], float] = {}

    async def run(self, export: HeldExport) -> None:
        """Brings it to its end, or reports why that is not possible now."""
        try:
            try:
                await self._advance(export)
            except (ExportLostError, ManagerUnavailableError):
                raise
            except Exception as error:
                failure = _failure(error)
                self._recorder.error(
                    export.pipeline_id,
                    stage=f"export {export.output}",
                    reason=failure.reason,
                    message=f"{export.path}: {failure}",
                    message_id="",
                )
                await self._client.fail(export, reason=failure.reason, error=str(failure), retryable=failure.retryable)
        except ExportLostError as error:
            log.info("Export %s: %s", export.id, error)
        except ManagerUnavailableError as error:
            log.warning("A step of export %s was not recorded, so it will be repeated: %s", export.id, error)

    async def _advance(self, export: HeldExport) -> None:
        async with self._opened(export) as (output, store):
            if export.aborted:
                await self._abort(export, store)
            else:
                await self._sweep(export, store, output)
                if export.manifest is None:
                    await self._abort(export, store)
                    await _File(self, export, store, output.config.file_policy).write()
                await self._commit(export, store, output.config.file_policy)
            await self._client.complete(export)
            self._at("completed")

    @asynccontextmanager
    async def _opened(self, export: HeldExport) -> AsyncIterator[tuple[RuntimeOutput, Export[Any, Any]]]:
        runtime = await self._config.runtime(export.pipeline_id, export.version)
        output = next((output for output in runtime.outputs if output.name == export.output), None)
        if output is None:
            raise UnknownPipelineError(f"Version {export.version} of the pipeline has no output {export.output}.")
        store = output.config.bind(output.connector)
        if not isinstance(store, Export):
            text = f"The connector of the output {export.output} does not store files."
            raise DeliveryError(Reason.CONFIGURATION, text, retryable=False)
        try:
            await patiently(store.open)
            yield output, store
        except DeliveryError as error:
            raise error.without(store.secrets()) from None
        finally:
            await store.close()

    async def _abort(self, export: HeldExport, store: Export[Any, Any]) -> None:
        """Removes what a former writer has begun."""
        if export.upload is None:
            return
        await patiently(lambda: store.abort(export.upload))
        self._at("upload_aborted")
        await self._client.record_upload(export, None)
        export.upload = None

    async def _sweep(self, export: HeldExport, store: Export[Any, Any], output: RuntimeOutput) -> None:
        """Once a day for each output: removes uploads that nobody will go on with, whose writers were killed before
        they recorded them, or whose exports were given up with their pipeline. A fault of it holds no file up."""
        now = time.monotonic()
        self._swept = {swept: at for swept, at in self._swept.items() if now - at < _SWEEP_AGAIN_SECONDS}
        if (export.pipeline_id, export.output) in self._swept:
            return
        self._swept[export.pipeline_id, export.output] = now
        try:
            async with asyncio.timeout(_SWEEP_SECONDS):
                for export_id, upload in await self._client.left_uploads(str(output.config.connector)):
                    await store.abort(upload)
                    await self._client.forget_upload(export_id, upload)
                await self._abort_unknown(export, store, output.config.file_policy)
        except Exception as error:
            shown = error.without(store.secrets()) if isinstance(error, DeliveryError) else type(error).__name__
            log.warning("Abandoned uploads of output %s cannot be removed now: %s", export.output, shown)
        self._at("swept")

    async def _abort_unknown(self, export: HeldExport, store: Export[Any, Any], policy: ExportPolicy) -> None:
        found = store.unfinished(policy.folder_of(export.path), policy.is_named_so, _ABANDONED_SECONDS)
        uploads = [upload async for upload in found]
        for start in range(0, len(uploads), _UPLOADS):
            for upload in await self._client.unknown_uploads(uploads[start : start + _UPLOADS]):
                await store.abort(upload)
                log.info("An abandoned upload was removed: %s", upload)

    async def _commit(self, export: HeldExport, store: Export[Any, Any], policy: ExportPolicy) -> None:
        await patiently(lambda: store.commit(export.upload))
        self._at("file_committed")
        if policy.manifest_file:
            await self._store_beside(store, f"{export.path}.manifest.json", json.dumps(export.manifest))
            self._at("manifest_committed")
        if policy.marker:
            await self._store_beside(store, marker_of(policy.marker, export.path), b"")
            self._at("marker_committed")

    async def _store_beside(self, store: Export[Any, Any], path: str, content: bytes) -> None:
        upload = await patiently(lambda: store.begin(path))
        if content:
            await patiently(lambda: store.write(upload, 1, content))
        await patiently(lambda: store.commit(upload))


class _File:
    """The content of one export."""

    def __init__(self, writer: ExportWriter, export: HeldExport, store: Export[Any, Any], policy: ExportPolicy) -> None:
        self._writer = writer
        self._export = export
        self._store = store
        self._policy = policy
        self._preview: list[Document] = []
        self._first_id = self._last_id = ""
        self._first_at = self._last_at = ""

    async def write(self) -> None:
        """Until everything is written and recorded. Raises DeliveryError, ExportLostError, ManagerUnavailableError."""
        export, client, at = self._export, self._writer._client, self._writer._at
        columns = await self._columns()
        export.upload = await patiently(lambda: self._store.begin(export.path))
        at("begun")
        await client.record_upload(export, export.upload)
        at("upload_recorded")
        encoder = encoder_for(self._policy, columns, export.path)
        upload = Upload(self._store, export.upload)
        try:
            for piece in export.slices:
                await upload.add(await asyncio.to_thread(self._encode, encoder, piece))
                export.written_rows += piece.rows
                at("slice_written")
            await upload.add(await asyncio.to_thread(encoder.finish))
            await upload.finish()
        finally:
            await upload.cancel()
        at("written")
        export.manifest = self._manifest(columns, upload)
        await client.record_manifest(export, export.manifest, self._shown(columns))
        at("manifest_recorded")

    async def _columns(self) -> list[Column]:
        columns = Columns(self._policy)
        if columns.need_documents:
            for piece in self._export.slices:
                await asyncio.to_thread(self._look, columns, piece)
        return columns.result()

    def _look(self, columns: Columns, piece: Slice) -> None:
        for rows in self._rows(piece):
            columns.look_at(rows)

    def _encode(self, encoder: Encoder, piece: Slice) -> bytes:
        encoded = []
        for rows in self._rows(piece):
            self._note(rows)
            encoded.append(encoder.add(rows))
        return b"".join(encoded)

    def _rows(self, piece: Slice) -> Iterator[list[Document]]:
        """Some at a time. Raises DeliveryError when the part cannot be read."""
        try:
            data = self._writer._staging.read(piece.path)
        except OSError as error:
            text = f"The staged part {piece.path} cannot be read: {error.strerror or type(error).__name__}."
            raise DeliveryError(Reason.STAGING_UNAVAILABLE, text, retryable=True) from None
        for messages in decode_part(data, piece.first, piece.rows, _ROWS_AT_A_TIME):
            yield list(documents(messages))

    def _note(self, rows: list[Document]) -> None:
        ids = [row.message.id for row in rows]
        times = [row.message.received_at for row in rows]
        self._first_id = min(self._first_id or ids[0], *ids)
        self._last_id = max(self._last_id, *ids)
        self._first_at = min(self._first_at or times[0], *times)
        self._last_at = max(self._last_at, *times)
        self._preview += rows[: _SHOWN_ROWS - len(self._preview)]

    def _manifest(self, columns: list[Column], upload: Upload) -> dict[str, Any]:
        export = self._export
        return {
            "export": export.id,
            "file": export.path,
            "pipeline": export.pipeline_id,
            "version": export.version,
            "output": export.output,
            "format": self._policy.format,
            "compression": self._policy.compression,
            "rows": sum(piece.rows for piece in export.slices),
            "bytes": upload.bytes,
            "sha256": upload.checksum,
            "schema": schema_of(columns),
            "first_message_id": self._first_id,
            "last_message_id": self._last_id,
            "first_received_at": self._first_at,
            "last_received_at": self._last_at,
            "written_at": utc_now(),
        }

    def _shown(self, columns: list[Column]) -> dict[str, Any]:
        """The first rows, cut so that they are short."""
        if self._policy.format == "jsonl" and not self._policy.columns:  # there the rows differ in their fields
            of_preview = Columns(self._policy)
            of_preview.look_at(self._preview)
            columns = of_preview.result()
        shown = columns[:_SHOWN_COLUMNS]
        return {
            "columns": [column.title for column in shown],
            "rows": [[_shown(row.value(column)) for column in shown] for row in self._preview],
        }


def _shown(value: Any) -> str | None:
    return None if value is None else json.text(value)[:_SHOWN_CHARACTERS]


def _failure(error: Exception) -> DeliveryError:
    match error:
        case DeliveryError():
            return error
        case ConfigUnavailableError():
            return DeliveryError(Reason.CONFIGURATION_UNAVAILABLE, str(error), retryable=True)
        case UnknownPipelineError():
            return DeliveryError(Reason.UNKNOWN_PIPELINE, str(error), retryable=False)
        case _:
            log.error("A file could not be written.", exc_info=error)
            return internal_error(error)
