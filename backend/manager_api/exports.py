"""The exporter's reports to the manager (exports.proto)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc

from backend.domain import json
from backend.manager_api.generated import exports_pb2 as pb
from backend.manager_api.generated.exports_pb2_grpc import ExportsStub

_CALL_SECONDS = 20.0
_CHANNEL_OPTIONS = [("grpc.max_receive_message_length", 64 * 1024 * 1024)]


class ManagerUnavailableError(Exception):
    """The manager does not answer; a later attempt may succeed."""


class ExportLostError(Exception):
    """The export was aborted, or another task may write it."""


class StagedElsewhereError(Exception):
    """The records were staged by another task."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows of a staged part."""

    path: str
    first: int
    rows: int


@dataclass(slots=True)
class HeldExport:
    """A file that this task is the only one to write; if it is ``aborted``, the remains of its upload to remove."""

    id: str
    token: str
    pipeline_id: str
    version: int
    output: str
    path: str
    slices: list[Slice]
    upload: Any
    """The store's handle of what was begun before; None for nothing."""
    manifest: dict[str, Any] | None
    """Present when everything is written and only has to be made visible."""
    aborted: bool
    written_rows: int = field(default=0)


@dataclass(frozen=True, slots=True)
class NewPart:
    """A staged part that is to be registered."""

    workspace_id: str
    pipeline_id: str
    output: str
    version: int
    path: str
    rows: int
    bytes: int


class ExportClient:
    """Used on one event loop. All methods raise ManagerUnavailableError; those about a held export also
    ExportLostError."""

    def __init__(
        self, *, manager_address: str, service_token: str, credentials: grpc.ChannelCredentials | None = None
    ) -> None:
        self._channel = (
            grpc.aio.insecure_channel(manager_address, _CHANNEL_OPTIONS)
            if credentials is None
            else grpc.aio.secure_channel(manager_address, credentials, _CHANNEL_OPTIONS)
        )
        self._stub = ExportsStub(self._channel)  # type: ignore[no-untyped-call]
        self._metadata = (("authorization", f"Bearer {service_token}"),)

    async def close(self) -> None:
        await self._channel.close(None)

    # -- staging ------------------------------------------------------------------

    async def staging_positions(self, partitions: Iterable[int]) -> dict[int, int]:
        """The next offset to stage; partitions that were never staged are missing."""
        request = pb.StagingPositionsRequest(partitions=partitions)
        return dict((await self._call(self._stub.GetStagingPositions, request)).offsets)

    async def register_parts(self, partition: int, start: int | None, end: int, parts: Iterable[NewPart]) -> None:
        """Raises StagedElsewhereError."""
        request = pb.RegisterPartsRequest(
            partition=partition,
            start=start,
            end=end,
            parts=[
                pb.StagedPart(
                    workspace_id=part.workspace_id,
                    pipeline_id=part.pipeline_id,
                    output=part.output,
                    version=part.version,
                    path=part.path,
                    rows=part.rows,
                    bytes=part.bytes,
                )
                for part in parts
            ],
        )
        try:
            await self._call(self._stub.RegisterParts, request)
        except ExportLostError as error:
            raise StagedElsewhereError(str(error)) from None

    async def unused_parts(self, limit: int) -> dict[int, str]:
        """Paths by id."""
        answer = await self._call(self._stub.ListUnusedParts, pb.ListUnusedPartsRequest(limit=limit))
        return dict(answer.parts)

    async def forget_parts(self, ids: Iterable[int]) -> None:
        await self._call(self._stub.ForgetParts, pb.ForgetPartsRequest(ids=ids))

    async def unknown_paths(self, paths: Iterable[str]) -> list[str]:
        """Those that belong to no part."""
        return list((await self._call(self._stub.ListUnknownPaths, pb.Paths(paths=paths))).paths)

    # -- exports ------------------------------------------------------------------

    async def claim(self, holder: str) -> HeldExport | None:
        """None when there is nothing to do."""
        answer = await self._call(self._stub.ClaimExport, pb.ClaimExportRequest(holder=holder))
        if not answer.HasField("export"):
            return None
        export = answer.export
        return HeldExport(
            id=export.id,
            token=export.token,
            pipeline_id=export.pipeline_id,
            version=export.version,
            output=export.output,
            path=export.path,
            slices=[Slice(piece.path, piece.first, piece.rows) for piece in export.slices],
            upload=json.loads(export.upload) if export.upload else None,
            manifest=json.loads(export.manifest) if export.manifest else None,
            aborted=export.aborted,
        )

    async def renew(self, exports: Iterable[HeldExport]) -> set[str]:
        """The ids of those that are still held."""
        request = pb.RenewExportsRequest(exports=[_held(export) for export in exports])
        return set((await self._call(self._stub.RenewExports, request)).ids)

    async def record_upload(self, export: HeldExport, upload: Any) -> None:
        """None once it is removed."""
        encoded = json.dumps(upload) if upload is not None else b""
        await self._call(self._stub.RecordUpload, pb.RecordUploadRequest(export=_held(export), upload=encoded))

    async def record_manifest(self, export: HeldExport, manifest: Mapping[str, Any], preview: Any) -> None:
        request = pb.RecordManifestRequest(
            export=_held(export), manifest=json.dumps(manifest), preview=json.dumps(preview)
        )
        await self._call(self._stub.RecordManifest, request)

    async def complete(self, export: HeldExport) -> None:
        await self._call(self._stub.CompleteExport, _held(export))

    async def fail(self, export: HeldExport, *, reason: str, error: str, retryable: bool) -> None:
        request = pb.FailExportRequest(export=_held(export), reason=reason, error=error, retryable=retryable)
        await self._call(self._stub.FailExport, request)

    # -- uploads that nobody will go on with ------------------------------------------

    async def left_uploads(self, connector_id: str) -> list[tuple[str, Any]]:
        """Those to the connector that exports have recorded, by the exports' ids."""
        request = pb.LeftUploadsRequest(connector_id=connector_id)
        answer = await self._call(self._stub.ListLeftUploads, request)
        return [(left.export_id, json.loads(left.upload)) for left in answer.uploads]

    async def forget_upload(self, export_id: str, upload: Any) -> None:
        """Once it is removed."""
        await self._call(self._stub.ForgetUpload, pb.LeftUpload(export_id=export_id, upload=json.dumps(upload)))

    async def unknown_uploads(self, uploads: Iterable[Any]) -> list[Any]:
        """Those of the uploads in a store that no export will go on with."""
        request = pb.Uploads(uploads=[json.dumps(upload) for upload in uploads])
        answer = await self._call(self._stub.ListUnknownUploads, request)
        return [json.loads(upload) for upload in answer.uploads]

    async def _call(self, method: Any, request: Any) -> Any:
        try:
            return await method(request, metadata=self._metadata, timeout=_CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                raise ExportLostError(error.details()) from None
            raise ManagerUnavailableError(f"The manager did not answer: {error.details()}") from None


def _held(export: HeldExport) -> pb.HeldExport:
    return pb.HeldExport(id=export.id, token=export.token, written_rows=export.written_rows)
