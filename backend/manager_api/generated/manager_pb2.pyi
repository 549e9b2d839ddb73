from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Reading(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    READING_UNSPECIFIED: _ClassVar[Reading]
    BATCHING: _ClassVar[Reading]
    STREAMING: _ClassVar[Reading]
READING_UNSPECIFIED: Reading
BATCHING: Reading
STREAMING: Reading

class PipelineRequest(_message.Message):
    __slots__ = ("pipeline_id", "version")
    PIPELINE_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    pipeline_id: str
    version: int
    def __init__(self, pipeline_id: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class Pipeline(_message.Message):
    __slots__ = ("id", "snapshot")
    ID_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    id: str
    snapshot: bytes
    def __init__(self, id: _Optional[str] = ..., snapshot: _Optional[bytes] = ...) -> None: ...

class RuntimeConfig(_message.Message):
    __slots__ = ("pipeline", "connectors")
    class ConnectorsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: RuntimeConnector
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[RuntimeConnector, _Mapping]] = ...) -> None: ...
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    CONNECTORS_FIELD_NUMBER: _ClassVar[int]
    pipeline: Pipeline
    connectors: _containers.MessageMap[str, RuntimeConnector]
    def __init__(self, pipeline: _Optional[_Union[Pipeline, _Mapping]] = ..., connectors: _Optional[_Mapping[str, RuntimeConnector]] = ...) -> None: ...

class RuntimeConnector(_message.Message):
    __slots__ = ("type", "connection", "error", "registered")
    class RegisteredEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    TYPE_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    type: str
    connection: bytes
    error: str
    registered: _containers.ScalarMap[str, bytes]
    def __init__(self, type: _Optional[str] = ..., connection: _Optional[bytes] = ..., error: _Optional[str] = ..., registered: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class ConnectorsRequest(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Connectors(_message.Message):
    __slots__ = ("connectors",)
    class ConnectorsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: RuntimeConnector
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[RuntimeConnector, _Mapping]] = ...) -> None: ...
    CONNECTORS_FIELD_NUMBER: _ClassVar[int]
    connectors: _containers.MessageMap[str, RuntimeConnector]
    def __init__(self, connectors: _Optional[_Mapping[str, RuntimeConnector]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchEvent(_message.Message):
    __slots__ = ("snapshot_piece", "snapshot_end", "changes")
    SNAPSHOT_PIECE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_END_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    snapshot_piece: Piece
    snapshot_end: SnapshotEnd
    changes: Piece
    def __init__(self, snapshot_piece: _Optional[_Union[Piece, _Mapping]] = ..., snapshot_end: _Optional[_Union[SnapshotEnd, _Mapping]] = ..., changes: _Optional[_Union[Piece, _Mapping]] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("pipelines", "pipelines_removed", "keys", "keys_removed", "connectors_changed")
    PIPELINES_FIELD_NUMBER: _ClassVar[int]
    PIPELINES_REMOVED_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    KEYS_REMOVED_FIELD_NUMBER: _ClassVar[int]
    CONNECTORS_CHANGED_FIELD_NUMBER: _ClassVar[int]
    pipelines: _containers.RepeatedCompositeFieldContainer[Pipeline]
    pipelines_removed: _containers.RepeatedScalarFieldContainer[str]
    keys: _containers.RepeatedCompositeFieldContainer[IngestKey]
    keys_removed: _containers.RepeatedScalarFieldContainer[str]
    connectors_changed: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, pipelines: _Optional[_Iterable[_Union[Pipeline, _Mapping]]] = ..., pipelines_removed: _Optional[_Iterable[str]] = ..., keys: _Optional[_Iterable[_Union[IngestKey, _Mapping]]] = ..., keys_removed: _Optional[_Iterable[str]] = ..., connectors_changed: _Optional[_Iterable[str]] = ...) -> None: ...

class SnapshotEnd(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class IngestKey(_message.Message):
    __slots__ = ("hash", "workspace_id", "expires_at")
    HASH_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    hash: str
    workspace_id: str
    expires_at: int
    def __init__(self, hash: _Optional[str] = ..., workspace_id: _Optional[str] = ..., expires_at: _Optional[int] = ...) -> None: ...

class ListFiltersRequest(_message.Message):
    __slots__ = ("workspace_id",)
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    workspace_id: str
    def __init__(self, workspace_id: _Optional[str] = ...) -> None: ...

class ListFiltersResponse(_message.Message):
    __slots__ = ("filters",)
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    filters: _containers.RepeatedCompositeFieldContainer[Filter]
    def __init__(self, filters: _Optional[_Iterable[_Union[Filter, _Mapping]]] = ...) -> None: ...

class Filter(_message.Message):
    __slots__ = ("pipeline_id", "workspace_id", "version", "condition")
    PIPELINE_ID_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    pipeline_id: str
    workspace_id: str
    version: int
    condition: bytes
    def __init__(self, pipeline_id: _Optional[str] = ..., workspace_id: _Optional[str] = ..., version: _Optional[int] = ..., condition: _Optional[bytes] = ...) -> None: ...

class LeaseInputsRequest(_message.Message):
    __slots__ = ("reading", "holder", "limit")
    READING_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    reading: Reading
    holder: str
    limit: int
    def __init__(self, reading: _Optional[_Union[Reading, str]] = ..., holder: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class LeaseInputsResponse(_message.Message):
    __slots__ = ("leases",)
    LEASES_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[InputLease]
    def __init__(self, leases: _Optional[_Iterable[_Union[InputLease, _Mapping]]] = ...) -> None: ...

class InputLease(_message.Message):
    __slots__ = ("pipeline_id", "version", "token", "seconds", "breakpoint", "ends_at")
    PIPELINE_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    BREAKPOINT_FIELD_NUMBER: _ClassVar[int]
    ENDS_AT_FIELD_NUMBER: _ClassVar[int]
    pipeline_id: str
    version: int
    token: str
    seconds: int
    breakpoint: bytes
    ends_at: bytes
    def __init__(self, pipeline_id: _Optional[str] = ..., version: _Optional[int] = ..., token: _Optional[str] = ..., seconds: _Optional[int] = ..., breakpoint: _Optional[bytes] = ..., ends_at: _Optional[bytes] = ...) -> None: ...

class HeldLease(_message.Message):
    __slots__ = ("pipeline_id", "token", "progress")
    PIPELINE_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    pipeline_id: str
    token: str
    progress: Progress
    def __init__(self, pipeline_id: _Optional[str] = ..., token: _Optional[str] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("breakpoint", "rows", "estimate", "failure")
    BREAKPOINT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    breakpoint: bytes
    rows: int
    estimate: int
    failure: str
    def __init__(self, breakpoint: _Optional[bytes] = ..., rows: _Optional[int] = ..., estimate: _Optional[int] = ..., failure: _Optional[str] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("leases",)
    LEASES_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[HeldLease]
    def __init__(self, leases: _Optional[_Iterable[_Union[HeldLease, _Mapping]]] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("leases",)
    LEASES_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[InputLease]
    def __init__(self, leases: _Optional[_Iterable[_Union[InputLease, _Mapping]]] = ...) -> None: ...

class ReleaseInputsRequest(_message.Message):
    __slots__ = ("leases",)
    LEASES_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[HeldLease]
    def __init__(self, leases: _Optional[_Iterable[_Union[HeldLease, _Mapping]]] = ...) -> None: ...

class ReleaseInputsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SplitBatchRequest(_message.Message):
    __slots__ = ("lease", "parts")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    lease: HeldLease
    parts: _containers.RepeatedCompositeFieldContainer[BatchPart]
    def __init__(self, lease: _Optional[_Union[HeldLease, _Mapping]] = ..., parts: _Optional[_Iterable[_Union[BatchPart, _Mapping]]] = ...) -> None: ...

class BatchPart(_message.Message):
    __slots__ = ("begins_at", "ends_at")
    BEGINS_AT_FIELD_NUMBER: _ClassVar[int]
    ENDS_AT_FIELD_NUMBER: _ClassVar[int]
    begins_at: bytes
    ends_at: bytes
    def __init__(self, begins_at: _Optional[bytes] = ..., ends_at: _Optional[bytes] = ...) -> None: ...

class SplitBatchResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CompleteBatchRequest(_message.Message):
    __slots__ = ("pipeline_id", "token", "breakpoint", "failure", "rows")
    PIPELINE_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    BREAKPOINT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    pipeline_id: str
    token: str
    breakpoint: bytes
    failure: str
    rows: int
    def __init__(self, pipeline_id: _Optional[str] = ..., token: _Optional[str] = ..., breakpoint: _Optional[bytes] = ..., failure: _Optional[str] = ..., rows: _Optional[int] = ...) -> None: ...

class CompleteBatchResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
