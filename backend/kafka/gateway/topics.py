"""Metadata, DescribeCluster, DescribeConfigs, and the refusal of Produce."""

import re
import secrets

from backend.kafka.gateway.connection import Call
from backend.kafka.gateway.errors import KafkaError
from backend.kafka.gateway.ports import Collection, StorageError
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey, ErrorCode
from backend.kafka.wire.structs import Struct

_METADATA = codec.response_type(ApiKey.METADATA)
_BROKER = _METADATA.type_of("brokers")
_TOPIC = _METADATA.type_of("topics")
_PARTITION = _TOPIC.type_of("partitions")
_CLUSTER = codec.response_type(ApiKey.DESCRIBE_CLUSTER)
_CLUSTER_BROKER = _CLUSTER.type_of("brokers")
_CONFIGS = codec.response_type(ApiKey.DESCRIBE_CONFIGS)
_CONFIG_RESULT = _CONFIGS.type_of("results")
_CONFIG = _CONFIG_RESULT.type_of("configs")
_PRODUCE = codec.response_type(ApiKey.PRODUCE)
_PRODUCED_TOPIC = _PRODUCE.type_of("responses")
_PRODUCED = _PRODUCED_TOPIC.type_of("partition_responses")
_PRODUCER_ID = codec.response_type(ApiKey.INIT_PRODUCER_ID)

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_ENDS_MAX_AGE = 1.0
_TOPIC_RESOURCE, _BROKER_RESOURCE = 2, 4
_STRING, _LIST, _LONG = 2, 7, 5
_DEFAULT_SOURCE = 5
_READ_ONLY = "The read gateway accepts no records. Collections are written by the pipelines of Headrace."


async def metadata(call: Call, request: Struct) -> Struct:
    nodes = call.context.nodes
    wants_all = request.topics is None or (call.version == 0 and not request.topics)
    topics = (
        [await _topic(call, collection) for collection in call.context.catalog.of(call.client.account.workspace)]
        if wants_all
        else [await _requested_topic(call, topic) for topic in request.topics]
    )
    return _METADATA(
        brokers=[_BROKER(node_id=n.id, host=n.address.host, port=n.address.port) for n in nodes.living],
        cluster_id=call.context.cluster_id,
        controller_id=nodes.living[0].id,
        topics=topics,
    )


async def _requested_topic(call: Call, topic: Struct) -> Struct:
    catalog, workspace = call.context.catalog, call.client.account.workspace
    if topic.name is None:
        collection = catalog.with_id(workspace, topic.topic_id)
        missing = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        collection = catalog.named(workspace, topic.name)
        is_legal = _LEGAL_NAME.fullmatch(topic.name) and topic.name not in (".", "..")
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION
    if collection is None:
        # A name in an answer is not null before version 12.
        name = topic.name if topic.name is not None or call.version >= 12 else ""
        return _TOPIC(error_code=missing, name=name, topic_id=topic.topic_id)
    return await _topic(call, collection)


async def _topic(call: Call, collection: Collection) -> Struct:
    try:
        ends = await call.context.logs.ends(collection, max_age=_ENDS_MAX_AGE)
        epochs = [end.epoch for end in ends]
    except StorageError:
        epochs = [-1] * collection.partitions
    leaders = [call.context.nodes.leader(collection, number).id for number in range(collection.partitions)]
    return _TOPIC(
        name=collection.name,
        topic_id=collection.id.bytes,
        partitions=[
            _PARTITION(
                partition_index=number,
                leader_id=leader,
                leader_epoch=epochs[number],
                replica_nodes=[leader],
                isr_nodes=[leader],
            )
            for number, leader in enumerate(leaders)
        ],
    )


async def describe_cluster(call: Call, request: Struct) -> Struct:
    if request.endpoint_type != 1:
        return _CLUSTER(
            error_code=ErrorCode.INVALID_REQUEST, error_message="The gateway has no controllers of its own."
        )
    nodes = call.context.nodes
    return _CLUSTER(
        cluster_id=call.context.cluster_id,
        controller_id=nodes.living[0].id,
        brokers=[_CLUSTER_BROKER(broker_id=n.id, host=n.address.host, port=n.address.port) for n in nodes.living],
    )


async def describe_configs(call: Call, request: Struct) -> Struct:
    return _CONFIGS(results=[_configs_of(call, resource) for resource in request.resources])


def _configs_of(call: Call, resource: Struct) -> Struct:
    result = _CONFIG_RESULT(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        values = _config_values(call, resource)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    names = resource.configuration_keys
    result.configs = [
        _CONFIG(name=name, value=value, read_only=True, config_source=_DEFAULT_SOURCE, config_type=kind)
        for name, (value, kind) in values.items()
        if names is None or name in names
    ]
    return result


def _config_values(call: Call, resource: Struct) -> dict[str, tuple[str, int]]:
    """Raises KafkaError."""
    if resource.resource_type == _BROKER_RESOURCE:
        nodes = call.context.nodes
        if resource.resource_name not in ("", str(nodes.local.id)):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"This node is {nodes.local.id}; ask the other one itself.")
        return {"broker.id": (str(nodes.local.id), _STRING), "auto.create.topics.enable": ("false", _STRING)}
    if resource.resource_type != _TOPIC_RESOURCE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Only topics and brokers have configurations here.")
    collection = call.context.catalog.named(call.client.account.workspace, resource.resource_name)
    if collection is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no collection {resource.resource_name}.")
    return {
        "cleanup.policy": ("delete", _LIST),
        "compression.type": (call.context.compression.name.lower(), _STRING),
        "message.timestamp.type": ("CreateTime", _STRING),
        # How long documents are kept is decided by the collection; the gateway deletes nothing.
        "retention.ms": ("-1", _LONG),
        "retention.bytes": ("-1", _LONG),
    }


async def produce(call: Call, request: Struct) -> Struct:
    """Refuses everything. Raises KafkaError without acknowledgements, since then only closing tells the client."""
    if request.acks == 0:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, _READ_ONLY)
    return _PRODUCE(
        responses=[
            _PRODUCED_TOPIC(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    _PRODUCED(
                        index=partition.index,
                        error_code=ErrorCode.POLICY_VIOLATION,
                        base_offset=-1,
                        error_message=_READ_ONLY,
                    )
                    for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


async def init_producer_id(call: Call, request: Struct) -> Struct:
    """An idempotent producer gets an id, so that it comes as far as Produce, whose refusal says why."""
    if request.transactional_id is not None:
        return _PRODUCER_ID(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, producer_epoch=-1)
    return _PRODUCER_ID(producer_id=secrets.randbelow(2**62), producer_epoch=0)
