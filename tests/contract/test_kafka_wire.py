"""The codec against kio, which is made of the same definitions by others, and against the pinned Kafka."""

import io
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey
from backend.kafka.wire.compiler import coder
from backend.kafka.wire.messages import REQUESTS, RESPONSES, Field, Message
from backend.kafka.wire.primitives import MalformedError, Parts
from backend.kafka.wire.structs import Struct, struct_type
from backend.runtime import kafka_messages
from backend.runtime.layout import Layout

MESSAGES = [
    pytest.param(message, version, id=f"{message.name}-{version}")
    for message in [*REQUESTS.values(), *RESPONSES.values()]
    for version in range(message.versions.first, message.versions.last + 1)
]
_RANGES = {"int8": (-(2**7), 2**7 - 1), "int16": (-(2**15), 2**15 - 1), "uint16": (0, 2**16 - 1)}
_RANGES |= {"int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1), "int64": (-(2**63), 2**63 - 1)}
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_MILLISECONDS = st.integers(0, 10**6)


def values(field: Field, cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    one = value(field, cls, version)
    values = st.lists(one, max_size=3) if field.is_array else one
    return st.none() | values if version in field.nullable else values


def value(field: Field, cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    if field.fields:
        return structs(cls.type_of(field.name), version)
    if field.kind == "string":
        return _TEXT
    if field.kind in ("bytes", "records"):
        return st.binary(max_size=20)
    if field.kind == "uuid":
        return st.binary(min_size=16, max_size=16)
    if field.kind == "bool":
        return st.booleans()
    if field.kind == "float64":
        return st.floats(allow_nan=False)
    if field.name.endswith("error_code"):
        return st.sampled_from([0, 3, 6])
    if field.name.endswith(("_ms", "_timestamp")):  # kio makes durations and dates of these
        return _MILLISECONDS
    return st.integers(*_RANGES[field.kind])


def structs(cls: type[Struct], version: int) -> st.SearchStrategy[Struct]:
    has = [f for f in cls._fields if version in f.versions or version in f.tagged]
    return st.builds(cls, **{field.name: values(field, cls, version) for field in has})


def written(message: Message, version: int, body: Struct) -> bytes:
    parts: Parts = [bytearray()]
    coder(message, version).write(body, parts)
    return b"".join(parts)


@pytest.mark.parametrize(("message", "version"), MESSAGES)
def test_every_message_is_read_as_it_was_written_and_as_kio_writes_it(message: Message, version: int) -> None:
    cls = struct_type(message)
    kind = EntityType.request if message.name.endswith("Request") else EntityType.response
    entity = getattr(load_payload_module(message.key, version, kind), message.name)  # type: ignore[arg-type]
    read, write = entity_reader(entity), entity_writer(entity)

    @settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(structs(cls, version))
    def check(body: Struct) -> None:
        data = written(message, version, body)
        decoded, end = coder(message, version).read(bytearray(data), 0)
        assert (decoded, end) == (body, len(data))
        out = io.BytesIO()
        write(out, read(data, 0)[0])
        assert out.getvalue() == data

    check()


def test_the_definitions_are_those_of_the_pinned_kafka(project_layout: Layout) -> None:
    assert kafka_messages.TARGET.read_text() == kafka_messages.text(project_layout.jars / "kafka")
    names = {message.name.removesuffix("Request") for message in REQUESTS.values()}
    assert {key.name.replace("_", "").lower() for key in ApiKey} == {name.lower() for name in names}


@given(st.binary(max_size=200), st.sampled_from([(m.key, v) for p in MESSAGES for m, v in [p.values]]))
@settings(max_examples=600, deadline=None)
def test_any_bytes_are_read_or_refused(data: bytes, which: tuple[int, int]) -> None:
    key, version = which
    for read in (
        lambda: codec.read_request(key, version, bytearray(data), 0),
        lambda: codec.read_response(key, version, bytearray(data)),
        lambda: codec.read_request_header(bytearray(data)),
    ):
        try:
            read()
        except MalformedError:
            continue


def test_unknown_tags_are_passed_on() -> None:
    body = codec.request_type(ApiKey.METADATA)()
    body.unknown_tags = {77: b"later"}
    frame = bytearray(b"".join(codec.write_request(ApiKey.METADATA, 12, 5, "me", body)))
    header = codec.read_request_header(frame)
    assert (header.correlation_id, header.client_id) == (5, "me")
    assert codec.read_request(ApiKey.METADATA, 12, frame, header.body).unknown_tags == {77: b"later"}
