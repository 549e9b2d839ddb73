from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SyncRequest(_message.Message):
    __slots__ = ("queries",)
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    queries: _containers.RepeatedCompositeFieldContainer[QueryReport]
    def __init__(self, queries: _Optional[_Iterable[_Union[QueryReport, _Mapping]]] = ...) -> None: ...

class QueryReport(_message.Message):
    __slots__ = ("id", "revision", "running", "error", "failures", "rows_per_second", "behind", "state_rows", "state_bytes")
    ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    ROWS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    STATE_ROWS_FIELD_NUMBER: _ClassVar[int]
    STATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    id: str
    revision: int
    running: bool
    error: str
    failures: int
    rows_per_second: float
    behind: int
    state_rows: int
    state_bytes: int
    def __init__(self, id: _Optional[str] = ..., revision: _Optional[int] = ..., running: _Optional[bool] = ..., error: _Optional[str] = ..., failures: _Optional[int] = ..., rows_per_second: _Optional[float] = ..., behind: _Optional[int] = ..., state_rows: _Optional[int] = ..., state_bytes: _Optional[int] = ...) -> None: ...

class SyncResponse(_message.Message):
    __slots__ = ("queries",)
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    queries: _containers.RepeatedCompositeFieldContainer[WantedQuery]
    def __init__(self, queries: _Optional[_Iterable[_Union[WantedQuery, _Mapping]]] = ...) -> None: ...

class WantedQuery(_message.Message):
    __slots__ = ("id", "revision", "plan")
    ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    id: str
    revision: int
    plan: bytes
    def __init__(self, id: _Optional[str] = ..., revision: _Optional[int] = ..., plan: _Optional[bytes] = ...) -> None: ...
