from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StagingPositionsRequest(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class StagingPositions(_message.Message):
    __slots__ = ("offsets",)
    class OffsetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.ScalarMap[int, int]
    def __init__(self, offsets: _Optional[_Mapping[int, int]] = ...) -> None: ...

class RegisterPartsRequest(_message.Message):
    __slots__ = ("partition", "start", "end", "parts")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    start: int
    end: int
    parts: _containers.RepeatedCompositeFieldContainer[StagedPart]
    def __init__(self, partition: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[StagedPart, _Mapping]]] = ...) -> None: ...

class StagedPart(_message.Message):
    __slots__ = ("workspace_id", "pipeline_id", "output", "version", "path", "rows", "bytes")
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    PIPELINE_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    workspace_id: str
    pipeline_id: str
    output: str
    version: int
    path: str
    rows: int
    bytes: int
    def __init__(self, workspace_id: _Optional[str] = ..., pipeline_id: _Optional[str] = ..., output: _Optional[str] = ..., version: _Optional[int] = ..., path: _Optional[str] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class RegisterPartsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClaimExportRequest(_message.Message):
    __slots__ = ("holder",)
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    holder: str
    def __init__(self, holder: _Optional[str] = ...) -> None: ...

class ClaimExportResponse(_message.Message):
    __slots__ = ("export",)
    EXPORT_FIELD_NUMBER: _ClassVar[int]
    export: Export
    def __init__(self, export: _Optional[_Union[Export, _Mapping]] = ...) -> None: ...

class Export(_message.Message):
    __slots__ = ("id", "token", "pipeline_id", "version", "output", "path", "slices", "upload", "manifest", "aborted")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    PIPELINE_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    id: str
    token: str
    pipeline_id: str
    version: int
    output: str
    path: str
    slices: _containers.RepeatedCompositeFieldContainer[Slice]
    upload: bytes
    manifest: bytes
    aborted: bool
    def __init__(self, id: _Optional[str] = ..., token: _Optional[str] = ..., pipeline_id: _Optional[str] = ..., version: _Optional[int] = ..., output: _Optional[str] = ..., path: _Optional[str] = ..., slices: _Optional[_Iterable[_Union[Slice, _Mapping]]] = ..., upload: _Optional[bytes] = ..., manifest: _Optional[bytes] = ..., aborted: _Optional[bool] = ...) -> None: ...

class Slice(_message.Message):
    __slots__ = ("path", "first", "rows")
    PATH_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    path: str
    first: int
    rows: int
    def __init__(self, path: _Optional[str] = ..., first: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class HeldExport(_message.Message):
    __slots__ = ("id", "token", "written_rows")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_ROWS_FIELD_NUMBER: _ClassVar[int]
    id: str
    token: str
    written_rows: int
    def __init__(self, id: _Optional[str] = ..., token: _Optional[str] = ..., written_rows: _Optional[int] = ...) -> None: ...

class RenewExportsRequest(_message.Message):
    __slots__ = ("exports",)
    EXPORTS_FIELD_NUMBER: _ClassVar[int]
    exports: _containers.RepeatedCompositeFieldContainer[HeldExport]
    def __init__(self, exports: _Optional[_Iterable[_Union[HeldExport, _Mapping]]] = ...) -> None: ...

class RenewExportsResponse(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class RecordUploadRequest(_message.Message):
    __slots__ = ("export", "upload")
    EXPORT_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    export: HeldExport
    upload: bytes
    def __init__(self, export: _Optional[_Union[HeldExport, _Mapping]] = ..., upload: _Optional[bytes] = ...) -> None: ...

class RecordManifestRequest(_message.Message):
    __slots__ = ("export", "manifest", "preview")
    EXPORT_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    export: HeldExport
    manifest: bytes
    preview: bytes
    def __init__(self, export: _Optional[_Union[HeldExport, _Mapping]] = ..., manifest: _Optional[bytes] = ..., preview: _Optional[bytes] = ...) -> None: ...

class FailExportRequest(_message.Message):
    __slots__ = ("export", "reason", "error", "retryable")
    EXPORT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    export: HeldExport
    reason: str
    error: str
    retryable: bool
    def __init__(self, export: _Optional[_Union[HeldExport, _Mapping]] = ..., reason: _Optional[str] = ..., error: _Optional[str] = ..., retryable: _Optional[bool] = ...) -> None: ...

class ExportResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LeftUploadsRequest(_message.Message):
    __slots__ = ("connector_id",)
    CONNECTOR_ID_FIELD_NUMBER: _ClassVar[int]
    connector_id: str
    def __init__(self, connector_id: _Optional[str] = ...) -> None: ...

class LeftUploads(_message.Message):
    __slots__ = ("uploads",)
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    uploads: _containers.RepeatedCompositeFieldContainer[LeftUpload]
    def __init__(self, uploads: _Optional[_Iterable[_Union[LeftUpload, _Mapping]]] = ...) -> None: ...

class LeftUpload(_message.Message):
    __slots__ = ("export_id", "upload")
    EXPORT_ID_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    export_id: str
    upload: bytes
    def __init__(self, export_id: _Optional[str] = ..., upload: _Optional[bytes] = ...) -> None: ...

class Uploads(_message.Message):
    __slots__ = ("uploads",)
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    uploads: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, uploads: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ListUnusedPartsRequest(_message.Message):
    __slots__ = ("limit",)
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    limit: int
    def __init__(self, limit: _Optional[int] = ...) -> None: ...

class ListUnusedPartsResponse(_message.Message):
    __slots__ = ("parts",)
    class PartsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    PARTS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.ScalarMap[int, str]
    def __init__(self, parts: _Optional[_Mapping[int, str]] = ...) -> None: ...

class ForgetPartsRequest(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class ForgetPartsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Paths(_message.Message):
    __slots__ = ("paths",)
    PATHS_FIELD_NUMBER: _ClassVar[int]
    paths: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, paths: _Optional[_Iterable[str]] = ...) -> None: ...
