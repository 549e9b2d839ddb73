"""The requests that the gateway answers, in every version that the codec knows."""

from collections.abc import Mapping

from backend.kafka.gateway import fetch, offsets, topics
from backend.kafka.gateway.connection import Call, Handler
from backend.kafka.gateway.groups import classic_requests, consumer_requests, offset_requests
from backend.kafka.wire.api import ApiKey
from backend.kafka.wire.structs import Struct


async def _by_connection(call: Call, request: Struct) -> Struct:
    raise NotImplementedError("The connection answers it itself, since the client is not authenticated yet.")


APIS: Mapping[int, Handler] = {
    ApiKey.API_VERSIONS: _by_connection,
    ApiKey.SASL_HANDSHAKE: _by_connection,
    ApiKey.SASL_AUTHENTICATE: _by_connection,
    ApiKey.METADATA: topics.metadata,
    ApiKey.DESCRIBE_CLUSTER: topics.describe_cluster,
    ApiKey.DESCRIBE_CONFIGS: topics.describe_configs,
    # Producers are offered these, so that they are told why nothing can be written.
    ApiKey.PRODUCE: topics.produce,
    ApiKey.INIT_PRODUCER_ID: topics.init_producer_id,
    ApiKey.FETCH: fetch.fetch,
    ApiKey.LIST_OFFSETS: offsets.list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offsets.offset_for_leader_epoch,
    ApiKey.FIND_COORDINATOR: classic_requests.find_coordinator,
    ApiKey.JOIN_GROUP: classic_requests.join_group,
    ApiKey.SYNC_GROUP: classic_requests.sync_group,
    ApiKey.HEARTBEAT: classic_requests.heartbeat,
    ApiKey.LEAVE_GROUP: classic_requests.leave_group,
    ApiKey.LIST_GROUPS: classic_requests.list_groups,
    ApiKey.DESCRIBE_GROUPS: classic_requests.describe_groups,
    ApiKey.DELETE_GROUPS: classic_requests.delete_groups,
    ApiKey.OFFSET_COMMIT: offset_requests.offset_commit,
    ApiKey.OFFSET_FETCH: offset_requests.offset_fetch,
    ApiKey.OFFSET_DELETE: offset_requests.offset_delete,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_requests.consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_requests.consumer_group_describe,
}
