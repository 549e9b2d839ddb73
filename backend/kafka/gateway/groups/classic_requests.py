"""The requests of classic groups."""

from collections.abc import Iterator

from backend.kafka.gateway.connection import Call
from backend.kafka.gateway.errors import KafkaError
from backend.kafka.gateway.groups.classic import ClassicMembers
from backend.kafka.gateway.groups.classic_member import MemberIdRequiredError
from backend.kafka.gateway.groups.coordinator import Group
from backend.kafka.gateway.groups.members import Caller
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey, ErrorCode
from backend.kafka.wire.structs import Struct

_JOINED = codec.response_type(ApiKey.JOIN_GROUP)
_JOINED_MEMBER = _JOINED.type_of("members")
_SYNCED = codec.response_type(ApiKey.SYNC_GROUP)
_BEAT = codec.response_type(ApiKey.HEARTBEAT)
_LEFT = codec.response_type(ApiKey.LEAVE_GROUP)
_LEFT_MEMBER = _LEFT.type_of("members")
_LISTED = codec.response_type(ApiKey.LIST_GROUPS)
_LISTED_GROUP = _LISTED.type_of("groups")
_DESCRIBED = codec.response_type(ApiKey.DESCRIBE_GROUPS)
_DESCRIBED_GROUP = _DESCRIBED.type_of("groups")
_DESCRIBED_MEMBER = _DESCRIBED_GROUP.type_of("members")
_DELETED = codec.response_type(ApiKey.DELETE_GROUPS)
_DELETED_GROUP = _DELETED.type_of("results")
_COORDINATORS = codec.response_type(ApiKey.FIND_COORDINATOR)
_COORDINATOR = _COORDINATORS.type_of("coordinators")

_GROUP_KEY = 0


def caller(call: Call) -> Caller:
    return Caller(call.client.client_id, f"/{call.client.host}")


async def find_coordinator(call: Call, request: Struct) -> Struct:
    if call.version >= 4:
        keys = request.coordinator_keys
        return _COORDINATORS(
            coordinators=[_COORDINATOR(key=key, **_place(call, request.key_type, key)) for key in keys]
        )
    return _COORDINATORS(**_place(call, request.key_type, request.key))


def _place(call: Call, key_type: int, key: str) -> dict[str, object]:
    if key_type != _GROUP_KEY:
        message = "The read gateway coordinates consumer groups only; there are no transactions."
        return {"error_code": ErrorCode.INVALID_REQUEST, "error_message": message, "node_id": -1, "port": -1}
    if not key:
        return {"error_code": ErrorCode.INVALID_GROUP_ID, "node_id": -1, "port": -1}
    node = call.context.nodes.coordinator_of(call.client.account.workspace, key)
    return {"node_id": node.id, "host": node.address.host, "port": node.address.port}


async def join_group(call: Call, request: Struct) -> Struct:
    try:
        group = await call.context.coordinator.group(call.client.account.workspace, request.group_id)
        joined = await group.classic().join(request, caller(call), call.version)
    except MemberIdRequiredError as error:
        return _JOINED(error_code=error.code, member_id=error.member_id, protocol_name=_no_protocol(call))
    except KafkaError as error:
        return _JOINED(error_code=error.code, member_id=request.member_id, protocol_name=_no_protocol(call))
    return _JOINED(
        generation_id=joined.generation,
        protocol_type=request.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            _JOINED_MEMBER(member_id=member_id, group_instance_id=instance_id, metadata=metadata)
            for member_id, instance_id, metadata in joined.members
        ],
    )


def _no_protocol(call: Call) -> str | None:
    return None if call.version >= 7 else ""


async def _members(call: Call, group_id: str) -> tuple[Group, ClassicMembers]:
    """Raises KafkaError."""
    workspace = call.client.account.workspace
    group = await call.context.coordinator.existing(workspace, group_id, ErrorCode.UNKNOWN_MEMBER_ID)
    if not isinstance(group.members, ClassicMembers):
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    return group, group.members


async def sync_group(call: Call, request: Struct) -> Struct:
    try:
        _, members = await _members(call, request.group_id)
        assignment = await members.sync(request)
    except KafkaError as error:
        return _SYNCED(error_code=error.code)
    return _SYNCED(protocol_type=members.protocol_type, protocol_name=members.protocol, assignment=assignment)


async def heartbeat(call: Call, request: Struct) -> Struct:
    try:
        _, members = await _members(call, request.group_id)
        members.heartbeat(request)
    except KafkaError as error:
        return _BEAT(error_code=error.code)
    return _BEAT()


async def leave_group(call: Call, request: Struct) -> Struct:
    try:
        _, members = await _members(call, request.group_id)
        if call.version < 3:
            members.leave(request.member_id, None)
            await members.save()
            return _LEFT()
        results = [_left(members, member) for member in request.members]
        await members.save()
    except KafkaError as error:
        return _LEFT(error_code=error.code)
    return _LEFT(members=results)


def _left(members: ClassicMembers, member: Struct) -> Struct:
    result = _LEFT_MEMBER(member_id=member.member_id, group_instance_id=member.group_instance_id)
    try:
        members.leave(member.member_id, member.group_instance_id)
    except KafkaError as error:
        result.error_code = error.code
    return result


async def list_groups(call: Call, request: Struct) -> Struct:
    coordinator, workspace = call.context.coordinator, call.client.account.workspace
    listed = []
    try:
        for name in await coordinator.names(workspace):
            group = await coordinator.find(workspace, name)
            if group is not None:
                listed.append(group)
    except KafkaError as error:
        return _LISTED(error_code=error.code)
    return _LISTED(groups=list(_listed(listed, request)))


def _listed(groups: list[Group], request: Struct) -> Iterator[Struct]:
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    for group in groups:
        members = group.members
        if (not states or members.state.lower() in states) and (not types or members.kind in types):
            yield _LISTED_GROUP(
                group_id=group.key[1],
                protocol_type=members.protocol_type,
                group_state=members.state,
                group_type=members.kind.capitalize(),
            )


async def describe_groups(call: Call, request: Struct) -> Struct:
    return _DESCRIBED(groups=[await _described(call, name) for name in request.groups])


async def _described(call: Call, name: str) -> Struct:
    try:
        group = await call.context.coordinator.existing(
            call.client.account.workspace, name, ErrorCode.GROUP_ID_NOT_FOUND
        )
        if not isinstance(group.members, ClassicMembers):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"The group {name} is not a classic group.")
    except KafkaError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            code, text = (error.code, error.message) if call.version >= 6 else (ErrorCode.NONE, None)
            return _DESCRIBED_GROUP(group_id=name, group_state="Dead", error_code=code, error_message=text)
        return _DESCRIBED_GROUP(group_id=name, error_code=error.code)
    members = group.members
    return _DESCRIBED_GROUP(
        group_id=name,
        group_state=members.state,
        protocol_type=members.protocol_type,
        protocol_data=members.protocol,
        members=[
            _DESCRIBED_MEMBER(
                member_id=member.id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.host,
                member_metadata=metadata,
                member_assignment=member.assignment,
            )
            for member, metadata in members.described()
        ],
    )


async def delete_groups(call: Call, request: Struct) -> Struct:
    return _DELETED(results=[await _deleted(call, name) for name in request.groups_names])


async def _deleted(call: Call, name: str) -> Struct:
    coordinator, workspace = call.context.coordinator, call.client.account.workspace
    try:
        group = await coordinator.existing(workspace, name, ErrorCode.GROUP_ID_NOT_FOUND)
        await coordinator.delete(group)
    except KafkaError as error:
        return _DELETED_GROUP(group_id=name, error_code=error.code)
    return _DELETED_GROUP(group_id=name)
