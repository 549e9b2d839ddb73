"""Administration through proxies."""

import json
import uuid
from collections import Counter

from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from tests.integration.kafka_proxy.clients import received, send, values, wait_until_known
from tests.kafka_cluster import KafkaCluster
from tests.kafka_proxies import Proxies
from tests.waiting import LIMIT_SECONDS, wait_until

TOPIC_TOOL = "org.apache.kafka.tools.TopicCommand"
GROUP_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def test_administration_of_topics_and_configurations(cluster: KafkaCluster, front: Proxies) -> None:
    admin = AdminClient({"bootstrap.servers": front.bootstrap})
    name = f"a-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 2, 3)])[name].result(LIMIT_SECONDS)
    wait_until_known(cluster, name, 2)
    admin.create_partitions([NewPartitions(name, 4)])[name].result(LIMIT_SECONDS)
    wait_until_known(cluster, name, 4)
    assert len(admin.list_topics(name, timeout=LIMIT_SECONDS).topics[name].partitions) == 4
    entry = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(LIMIT_SECONDS)
    # Any broker answers, and each learns of the change independently.
    wait_until(lambda: configuration(admin, name)["retention.ms"].value == "60000")
    send(front.bootstrap, name, values(200))
    ends = admin.list_offsets({TopicPartition(name, number): OffsetSpec.latest() for number in range(4)})
    highest = {place.partition: future.result(LIMIT_SECONDS).offset for place, future in ends.items()}
    assert sum(highest.values()) == 200
    places = [TopicPartition(name, number, highest[number]) for number in range(4)]
    assert all(future.result(LIMIT_SECONDS) for future in admin.delete_records(places).values())
    starts = admin.list_offsets({TopicPartition(name, number): OffsetSpec.earliest() for number in range(4)})
    assert sum(future.result(LIMIT_SECONDS).offset for future in starts.values()) == 200
    admin.delete_topics([name])[name].result(LIMIT_SECONDS)
    wait_until(lambda: name not in admin.list_topics(timeout=LIMIT_SECONDS).topics)


def configuration(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    futures = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)])
    entries: dict[str, ConfigEntry] = next(iter(futures.values())).result(LIMIT_SECONDS)
    return entries


def test_groups_are_listed_and_described_once(front: Proxies, topic: str) -> None:
    send(front.bootstrap, topic, values(10))
    groups = [uuid.uuid4().hex for _ in range(4)]  # with coordinators on all brokers
    for group in groups:
        received(front.bootstrap, topic, 10, **{"group.id": group})
    admin = AdminClient({"bootstrap.servers": front.bootstrap})
    listed = Counter(group.group_id for group in admin.list_consumer_groups().result(LIMIT_SECONDS).valid)
    assert {listed[group] for group in groups} == {1}
    described = admin.describe_consumer_groups(groups)
    assert {group: future.result(LIMIT_SECONDS).group_id for group, future in described.items()} == {
        g: g for g in groups
    }
    for deleted in admin.delete_consumer_groups(groups).values():
        deleted.result(LIMIT_SECONDS)
    assert not {group.group_id for group in admin.list_consumer_groups().result(LIMIT_SECONDS).valid} & set(groups)


def test_access_lists_are_administered(front: Proxies, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": front.bootstrap})
    binding = AclBinding(
        *(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:carol", "*"),
        *(AclOperation.READ, AclPermissionType.ALLOW),
    )
    admin.create_acls([binding])[binding].result(LIMIT_SECONDS)
    own_acls = AclBindingFilter(
        *(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, None, None),
        *(AclOperation.ANY, AclPermissionType.ANY),
    )
    wait_until(lambda: admin.describe_acls(own_acls).result(LIMIT_SECONDS) == [binding])
    assert admin.delete_acls([own_acls])[own_acls].result(LIMIT_SECONDS) == [binding]


def test_log_folders_of_each_broker_are_named_once(cluster: KafkaCluster, front: Proxies, topic: str) -> None:
    send(front.bootstrap, topic, values(10))
    tool = "org.apache.kafka.tools.LogDirsCommand"
    done = cluster.tool(tool, "--bootstrap-server", front.bootstrap, "--describe", "--topic-list", topic)
    report = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    folders = [folder["logDir"] for broker in report["brokers"] for folder in broker["logDirs"]]
    assert sorted(folder.split(":")[0] for folder in folders) == ["broker-1", "broker-2", "broker-3"]
