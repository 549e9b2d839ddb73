from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobReport(_message.Message):
    __slots__ = ("job", "token", "losses")
    JOB_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    job: str
    token: int
    losses: _containers.RepeatedCompositeFieldContainer[Loss]
    def __init__(self, job: _Optional[str] = ..., token: _Optional[int] = ..., losses: _Optional[_Iterable[_Union[Loss, _Mapping]]] = ...) -> None: ...

class Loss(_message.Message):
    __slots__ = ("stage", "partition", "first_offset", "count")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    stage: str
    partition: int
    first_offset: int
    count: int
    def __init__(self, stage: _Optional[str] = ..., partition: _Optional[int] = ..., first_offset: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class JobOrder(_message.Message):
    __slots__ = ("drain", "demands")
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    DEMANDS_FIELD_NUMBER: _ClassVar[int]
    drain: bool
    demands: Demands
    def __init__(self, drain: _Optional[bool] = ..., demands: _Optional[_Union[Demands, _Mapping]] = ...) -> None: ...

class Demands(_message.Message):
    __slots__ = ("by_stage",)
    class ByStageEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    BY_STAGE_FIELD_NUMBER: _ClassVar[int]
    by_stage: _containers.ScalarMap[str, str]
    def __init__(self, by_stage: _Optional[_Mapping[str, str]] = ...) -> None: ...
