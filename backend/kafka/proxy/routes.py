"""Where each API's requests go.

Every API that a broker offers to clients is listed here. One without a route is not advertised, and a request for it
closes the connection, as Kafka does for unknown APIs. docs/adr/0010-kafka-proxy.md gives the reasons.
"""

from backend.kafka.proxy.addresses import (
    DescribeCluster,
    DescribeQuorum,
    DescribeTopicPartitions,
    FindCoordinator,
    Metadata,
)
from backend.kafka.proxy.routing import Route
from backend.kafka.proxy.strategies import (
    Anywhere,
    AtController,
    AtCoordinator,
    AtCoordinators,
    AtLeaders,
    ByVersion,
    Everywhere,
    LogDirs,
    OfBrokers,
    Partitions,
    Produce,
)
from backend.kafka.wire.api import ApiKey

GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators, as numbered by FindCoordinator."""

_GROUP_ID = AtCoordinator(GROUP, lambda request: request.group_id)
_TRANSACTIONAL_ID = AtCoordinator(TRANSACTION, lambda request: request.transactional_id)
_COMMIT = Partitions("topics", "partitions", "partition_index")
_EPOCH = Partitions("topics", "partitions", "partition", "topic")
_COMMITS = AtCoordinator(GROUP, lambda request: request.group_id, (_COMMIT, _COMMIT))
_ANY = Anywhere()

ROUTES: dict[int, Route] = {
    # Brokers and their addresses: any broker answers, and the addresses are replaced by proxies'.
    ApiKey.METADATA: Metadata(),
    ApiKey.DESCRIBE_CLUSTER: DescribeCluster(),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: DescribeTopicPartitions(),
    ApiKey.DESCRIBE_QUORUM: DescribeQuorum(),
    ApiKey.FIND_COORDINATOR: FindCoordinator(),
    # Partitions: their leaders.
    ApiKey.PRODUCE: Produce(
        Partitions("topic_data", "partition_data", "index"), Partitions("responses", "partition_responses", "index")
    ),
    ApiKey.LIST_OFFSETS: AtLeaders(_COMMIT, _COMMIT),
    ApiKey.DELETE_RECORDS: AtLeaders(_COMMIT, _COMMIT),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: AtLeaders(_EPOCH, _EPOCH),
    ApiKey.DESCRIBE_PRODUCERS: AtLeaders(Partitions("topics", "partition_indexes", None), _COMMIT),
    # Groups: their coordinators.
    ApiKey.JOIN_GROUP: _GROUP_ID,
    ApiKey.SYNC_GROUP: _GROUP_ID,
    ApiKey.HEARTBEAT: _GROUP_ID,
    ApiKey.LEAVE_GROUP: _GROUP_ID,
    ApiKey.OFFSET_DELETE: _GROUP_ID,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _GROUP_ID,
    ApiKey.STREAMS_GROUP_HEARTBEAT: _GROUP_ID,
    ApiKey.SHARE_GROUP_HEARTBEAT: _GROUP_ID,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _GROUP_ID,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _GROUP_ID,
    ApiKey.OFFSET_COMMIT: _COMMITS,
    ApiKey.TXN_OFFSET_COMMIT: _COMMITS,
    ApiKey.OFFSET_FETCH: ByVersion(
        lambda request: request.groups, AtCoordinators(GROUP, "groups", "groups", "group_id"), _GROUP_ID
    ),
    ApiKey.DESCRIBE_GROUPS: AtCoordinators(GROUP, "groups", "groups", "group_id"),
    ApiKey.DELETE_GROUPS: AtCoordinators(GROUP, "groups_names", "results", "group_id"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: AtCoordinators(GROUP, "group_ids", "groups", "group_id"),
    ApiKey.STREAMS_GROUP_DESCRIBE: AtCoordinators(GROUP, "group_ids", "groups", "group_id"),
    ApiKey.SHARE_GROUP_DESCRIBE: AtCoordinators(GROUP, "group_ids", "groups", "group_id"),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: AtCoordinators(GROUP, "groups", "groups", "group_id"),
    # Transactions: their coordinators. An idempotent producer's id comes from any broker.
    ApiKey.INIT_PRODUCER_ID: _TRANSACTIONAL_ID,
    ApiKey.ADD_OFFSETS_TO_TXN: _TRANSACTIONAL_ID,
    ApiKey.END_TXN: _TRANSACTIONAL_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN: ByVersion(
        lambda request: request.transactions,
        AtCoordinators(TRANSACTION, "transactions", "results_by_transaction", "transactional_id"),
        AtCoordinator(
            TRANSACTION,
            lambda request: request.v3_and_below_transactional_id,
            (
                Partitions("v3_and_below_topics", "partitions", None),
                Partitions(
                    "results_by_topic_v3_and_below",
                    "results_by_partition",
                    "partition_index",
                    error="partition_error_code",
                ),
            ),
        ),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: AtCoordinators(
        TRANSACTION, "transactional_ids", "transaction_states", "transactional_id"
    ),
    # The controller.
    ApiKey.CREATE_TOPICS: AtController(),
    ApiKey.ELECT_LEADERS: AtController(),
    # Cluster-wide lists: every broker, once.
    ApiKey.LIST_GROUPS: Everywhere("groups"),
    ApiKey.LIST_TRANSACTIONS: Everywhere("transaction_states"),
    ApiKey.DESCRIBE_LOG_DIRS: LogDirs("results"),
    # One broker's configuration: that broker.
    ApiKey.DESCRIBE_CONFIGS: OfBrokers("results"),
    ApiKey.ALTER_CONFIGS: OfBrokers("responses"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: OfBrokers("responses"),
    # Any broker: it answers, or forwards to the controller.
    **dict.fromkeys(
        (
            ApiKey.DELETE_TOPICS,
            ApiKey.CREATE_PARTITIONS,
            ApiKey.DESCRIBE_ACLS,
            ApiKey.CREATE_ACLS,
            ApiKey.DELETE_ACLS,
            ApiKey.CREATE_DELEGATION_TOKEN,
            ApiKey.RENEW_DELEGATION_TOKEN,
            ApiKey.EXPIRE_DELEGATION_TOKEN,
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            ApiKey.DESCRIBE_CLIENT_QUOTAS,
            ApiKey.ALTER_CLIENT_QUOTAS,
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            ApiKey.UPDATE_FEATURES,
            ApiKey.LIST_CONFIG_RESOURCES,
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
            ApiKey.PUSH_TELEMETRY,
            ApiKey.ADD_RAFT_VOTER,
            ApiKey.REMOVE_RAFT_VOTER,
        ),
        _ANY,
    ),
}

WITH_SESSIONS = {ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE}
"""Sent to partitions' leaders as well, but with sessions: fetch.py and share.py."""

REFUSED = {
    # Between brokers only.
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    # They name brokers and log directories that clients do not see.
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.UNREGISTER_BROKER,
}
"""Not advertised; the connection of a client that sends one nevertheless is closed."""
