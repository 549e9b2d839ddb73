"""The gRPC service to which the exporter reports (exports.proto)."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db import models

from backend.apps.exports import services, staging
from backend.apps.exports.models import Export
from backend.apps.manager.interceptors import InvalidRequestError, uuid_of
from backend.apps.manager.threads import in_thread
from backend.domain import json
from backend.manager_api.generated import exports_pb2 as pb
from backend.manager_api.generated import exports_pb2_grpc


class ExportsServicer(exports_pb2_grpc.ExportsServicer):
    """Records what the exporter does in the database."""

    async def GetStagingPositions(self, request: pb.StagingPositionsRequest, context: Any) -> pb.StagingPositions:
        return pb.StagingPositions(offsets=await in_thread(staging.staging_positions, list(request.partitions)))

    async def RegisterParts(self, request: pb.RegisterPartsRequest, context: Any) -> pb.RegisterPartsResponse:
        await in_thread(_register, request)
        return pb.RegisterPartsResponse()

    async def ClaimExport(self, request: pb.ClaimExportRequest, context: Any) -> pb.ClaimExportResponse:
        export = await in_thread(services.export_claim, holder=request.holder)
        return pb.ClaimExportResponse(export=_message(export) if export is not None else None)

    async def RenewExports(self, request: pb.RenewExportsRequest, context: Any) -> pb.RenewExportsResponse:
        held = [(*_held(export), export.written_rows) for export in request.exports]
        return pb.RenewExportsResponse(ids=[str(pk) for pk in await in_thread(services.exports_renew, held)])

    async def RecordUpload(self, request: pb.RecordUploadRequest, context: Any) -> pb.ExportResponse:
        upload = json.loads(request.upload) if request.upload else None
        return await _reported(services.export_record_upload, request.export, upload=upload)

    async def RecordManifest(self, request: pb.RecordManifestRequest, context: Any) -> pb.ExportResponse:
        manifest, preview = _object(request.manifest), json.loads(request.preview)
        try:
            json.bounded_int(manifest.get("rows"), 0, models.BigIntegerField.MAX_BIGINT)
        except ValueError as error:
            raise InvalidRequestError(f"The manifest's number of rows is {error}.") from None
        return await _reported(services.export_record_manifest, request.export, manifest=manifest, preview=preview)

    async def CompleteExport(self, request: pb.HeldExport, context: Any) -> pb.ExportResponse:
        return await _reported(services.export_complete, request)

    async def FailExport(self, request: pb.FailExportRequest, context: Any) -> pb.ExportResponse:
        failure = {"reason": request.reason, "error": request.error, "retryable": request.retryable}
        return await _reported(services.export_fail, request.export, **failure)

    async def ListLeftUploads(self, request: pb.LeftUploadsRequest, context: Any) -> pb.LeftUploads:
        left = await in_thread(services.uploads_left, uuid_of(request.connector_id))
        return pb.LeftUploads(
            uploads=[pb.LeftUpload(export_id=str(pk), upload=json.dumps(upload)) for pk, upload in left]
        )

    async def ForgetUpload(self, request: pb.LeftUpload, context: Any) -> pb.ExportResponse:
        await in_thread(services.upload_forget, uuid_of(request.export_id), json.loads(request.upload))
        return pb.ExportResponse()

    async def ListUnknownUploads(self, request: pb.Uploads, context: Any) -> pb.Uploads:
        unknown = await in_thread(services.uploads_unknown, [_object(upload) for upload in request.uploads])
        return pb.Uploads(uploads=[json.dumps(upload) for upload in unknown])

    async def ListUnusedParts(self, request: pb.ListUnusedPartsRequest, context: Any) -> pb.ListUnusedPartsResponse:
        parts = await in_thread(staging.parts_unused, request.limit)
        return pb.ListUnusedPartsResponse(parts={part.pk: part.path for part in parts})

    async def ForgetParts(self, request: pb.ForgetPartsRequest, context: Any) -> pb.ForgetPartsResponse:
        await in_thread(staging.parts_forget, list(request.ids))
        return pb.ForgetPartsResponse()

    async def ListUnknownPaths(self, request: pb.Paths, context: Any) -> pb.Paths:
        return pb.Paths(paths=await in_thread(staging.paths_unknown, list(request.paths)))


async def _reported(service: Callable[..., None], held: pb.HeldExport, **named: Any) -> pb.ExportResponse:
    export_id, token = _held(held)
    await in_thread(service, export_id=export_id, token=token, **named)
    return pb.ExportResponse()


def _object(data: bytes) -> dict[str, Any]:
    """Raises InvalidJsonError and InvalidRequestError."""
    document = json.loads(data)
    if not isinstance(document, dict):
        raise InvalidRequestError("The manifest or an upload is not a JSON object.")
    return document


def _held(export: pb.HeldExport) -> tuple[UUID, UUID]:
    return uuid_of(export.id), uuid_of(export.token)


def _register(request: pb.RegisterPartsRequest) -> None:
    staging.parts_register(
        partition=request.partition,
        start=request.start if request.HasField("start") else None,
        end=request.end,
        parts=[
            {
                "workspace_id": uuid_of(part.workspace_id),
                "pipeline_id": uuid_of(part.pipeline_id),
                "output": part.output,
                "version": part.version,
                "path": part.path,
                "rows": part.rows,
                "bytes": part.bytes,
            }
            for part in request.parts
        ],
    )


def _message(export: Export) -> pb.Export:
    return pb.Export(
        id=str(export.pk),
        token=str(export.token),
        pipeline_id=str(export.pipeline_id),
        version=export.version,
        output=export.output,
        path=export.path,
        slices=[pb.Slice(path=path, first=first, rows=rows) for _, path, first, rows in export.slices],
        upload=json.dumps(export.upload) if export.upload is not None else b"",
        manifest=json.dumps(export.manifest) if export.manifest is not None else b"",
        aborted=export.state == Export.State.ABORTED,
    )
