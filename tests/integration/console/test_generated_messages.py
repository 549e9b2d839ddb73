"""Whatever is sent to the manager by gRPC, or to the console by a WebSocket, neither fails."""

import asyncio
import json
import uuid
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import grpc
import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from backend.apps.exports.models import Export
from backend.apps.jobs.models import SparkJob
from backend.apps.manager.leases import leases_claim
from backend.apps.pipelines.services import pipeline_publish
from backend.apps.sql.models import SqlQuery
from backend.domain.capabilities import Reading
from backend.manager_api.generated import exports_pb2, jobs_pb2, manager_pb2, sql_pb2
from tests import factories
from tests.infra import SERVICE_TOKEN
from tests.integration.conftest import MANAGER_ADDRESS, RunningManager
from tests.integration.console.test_live_socket import Socket, cookie_of
from tests.waiting import LIMIT_SECONDS, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_server", "secret_keys")]

_ANSWERS = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
}
_LOGIN = (("authorization", f"Bearer {SERVICE_TOKEN}"),)
_BUSY = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}

T = TypeVar("T")

_SERVICES = [
    service
    for module in (manager_pb2, exports_pb2, jobs_pb2, sql_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
]
_METHODS = [method for service in _SERVICES for method in service.methods if not method.server_streaming]

_HOSTILE = ["", "\0", "x" * 100_000, "nobody", "00000000-0000-0000-0000-000000000000", "../..", "'; --"]
_DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts),
)
_GENERATED = settings(
    # In the long form a thousand for each method, which differ each time.
    max_examples=max(40, settings.default.max_examples // 5),
    deadline=None,
    derandomize=settings.get_current_profile_name() != "long",
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
)


Known = dict[str, list[str]]
"""Texts that mean something, by the name of their field."""


def messages(described: Descriptor, known: Known) -> st.SearchStrategy[Any]:
    fields = {field.name: st.none() | _field(field, known) for field in described.fields}
    made = GetMessageClass(described)
    return st.fixed_dictionaries(fields).map(lambda given: made(**given))


def _field(field: FieldDescriptor, known: Known) -> st.SearchStrategy[Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        return st.dictionaries(_one(entry["key"], known), _one(entry["value"], known), max_size=3)
    one = _one(field, known)
    return st.lists(one, max_size=3) if field.is_repeated else one


def _one(field: FieldDescriptor, known: Known) -> st.SearchStrategy[Any]:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            hostile = st.sampled_from(_HOSTILE) | st.text(st.characters(codec="utf-8"), max_size=300)
            meant = known.get(field.name)
            return st.one_of(st.sampled_from(meant), st.sampled_from(meant), hostile) if meant else hostile
        case FieldDescriptor.TYPE_BYTES:
            return _DOCUMENTS.map(lambda document: json.dumps(document).encode()) | st.binary(max_size=100)
        case FieldDescriptor.TYPE_BOOL:
            return st.booleans()
        case FieldDescriptor.TYPE_DOUBLE:
            return st.floats()
        case FieldDescriptor.TYPE_ENUM | FieldDescriptor.TYPE_INT32:
            return st.integers(-1, 3) | st.integers(-(2**31), 2**31 - 1)
        case FieldDescriptor.TYPE_UINT32:
            return st.integers(0, 3) | st.integers(0, 2**32 - 1)
        case FieldDescriptor.TYPE_INT64:
            return st.integers(-1, 9) | st.integers(-(2**63), 2**63 - 1)
        case FieldDescriptor.TYPE_UINT64:
            return st.integers(0, 3) | st.integers(0, 2**64 - 1)
        case FieldDescriptor.TYPE_MESSAGE:
            return messages(field.message_type, known)
    raise AssertionError(f"Fields of type {field.type} have to be generated, too.")


def made_names() -> Known:
    """Of things that there are, and that the caller holds."""
    workspace = factories.make_workspace()
    store = factories.make_connector(workspace, type="redis_stream", host="127.0.0.1")
    source = {"type": "connector", "connector": str(store.pk), "options": {"stream": "orders", "group": "g"}}
    pipeline = factories.make_pipeline(workspace, input=source)
    pipeline_publish(pipeline=pipeline, actor=factories.admin_of(workspace))
    [lease] = leases_claim(reading=Reading.STREAMING, holder="me", limit=1)
    SparkJob.objects.update_or_create(name="data-plane", defaults={"token": 7})
    query = SqlQuery.objects.create(workspace=workspace, name="q", makes_sink=False, plan={})
    export = Export.objects.create(
        workspace_id=workspace.pk,
        pipeline_id=pipeline.pk,
        connector_id=store.pk,
        output="out",
        version=1,
        number=1,
        path="a.csv",
        rows=1,
        bytes=1,
        slices=[],
        state=Export.State.WRITING,
        token=uuid.uuid4(),
        locked_until=timezone.now() + timedelta(hours=1),
    )
    return {
        "workspace_id": [str(workspace.pk)],
        "connector_id": [str(store.pk)],
        "pipeline_id": [str(pipeline.pk)],
        "export_id": [str(export.pk)],
        "id": [str(export.pk), str(query.pk)],
        "ids": [str(store.pk)],
        "token": [str(lease.token), str(export.token)],
        "job": ["data-plane"],
    }


@pytest.fixture
async def known(running: RunningManager) -> Known:
    return await sync_to_async(made_names)()


@pytest.mark.parametrize("method", _METHODS, ids=lambda method: method.full_name.rpartition("manager.v1.")[2])
async def test_no_message_breaks_the_manager(method: MethodDescriptor, known: Known) -> None:
    name = f"/{method.containing_service.full_name}/{method.name}"

    def call_all() -> None:
        with grpc.insecure_channel(MANAGER_ADDRESS) as channel:
            call = channel.unary_unary(
                name,
                request_serializer=GetMessageClass(method.input_type).SerializeToString,
                response_deserializer=GetMessageClass(method.output_type).FromString,
            )
            for request in generated(messages(method.input_type, known)):
                wait_until(partial(is_answered, call, request))

    await asyncio.to_thread(call_all)


def is_answered(call: Any, request: Any) -> bool:
    """False when a busy machine took too long for once."""
    answer = call.future(request, metadata=_LOGIN, timeout=LIMIT_SECONDS)
    answer.exception()  # waits for it
    if answer.code() in _BUSY:
        return False
    assert answer.code() in _ANSWERS, f"{answer.code()}: {answer.details()}, asked for {request}"
    return True


_PIPELINES = st.fixed_dictionaries({"pipelines": _DOCUMENTS | st.lists(st.uuids().map(str) | _DOCUMENTS)})
_FRAMES = st.one_of(
    st.fixed_dictionaries({"text": (_PIPELINES | _DOCUMENTS).map(json.dumps) | st.text()}),
    st.fixed_dictionaries({"bytes": st.binary(max_size=100)}),
)
_WORKSPACES = [b"", b"workspace=%00", b"workspace=\xff", b"workspace=" + b"x" * 9000]
_QUERIES = st.sampled_from(_WORKSPACES) | st.binary(max_size=50)


async def test_nothing_that_is_sent_breaks_a_socket() -> None:
    user = await sync_to_async(lambda: factories.admin_of(factories.make_workspace()))()
    cookie = await sync_to_async(cookie_of)(user)
    for query, frames in generated(st.tuples(_QUERIES, st.lists(_FRAMES, max_size=5))):
        socket = Socket(cookie, query=query)
        await socket.connect()
        for frame in frames:
            await socket.send_input({"type": "websocket.receive", **frame})
        await socket.disconnect()  # raises what the socket's end raised


def generated(strategy: st.SearchStrategy[T]) -> list[T]:
    examples: list[T] = []

    @_GENERATED
    @given(strategy)
    def keep(example: T) -> None:
        examples.append(example)

    keep()
    return examples
