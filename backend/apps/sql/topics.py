"""The topics that statements read and write, in Headrace's own Kafka cluster.

A topic belongs to the workspace that has a stream or table on it: for others it does not exist.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from django.conf import settings
from uuid_utils.compat import uuid7

from backend.apps.sql.errors import SqlError
from backend.apps.sql.models import SqlSource
from backend.apps.workspaces.models import Workspace
from backend.domain import limits
from backend.kafka.client.topics import Topic, topic_create
from backend.settings import platform_settings

T = TypeVar("T")
_SECONDS = 10.0
_OWN = ("firehose_", "_")
"""How topics begin that are Headrace's own or Kafka's."""


def topic_partitions(workspace: Workspace) -> dict[str, int]:
    """The number of partitions of every topic that the workspace may use, by name. Raises SqlError."""
    topics = _ask(lambda: _admin().list_topics(timeout=_SECONDS).topics)
    taken = set(SqlSource.objects.exclude(workspace=workspace).values_list("topic", flat=True))
    return {
        name: len(topic.partitions)
        for name, topic in sorted(topics.items())
        if not name.startswith(_OWN) and name not in taken
    }


def cluster_id() -> str:
    """Kafka's own. Raises SqlError."""
    return str(_ask(lambda: _admin().describe_cluster(request_timeout=_SECONDS).result().cluster_id))


def check_available(workspace: Workspace, topic: str) -> None:
    """Raises SqlError when the workspace may not use a topic of this name."""
    if topic.startswith(_OWN) or SqlSource.objects.filter(topic=topic).exclude(workspace=workspace).exists():
        text = "The topic is not available to this workspace: use another name."
        raise SqlError("The topic cannot be used.", properties={"kafka_topic": [text]})


def topic_make(topic: str, *, partitions: int, replicas: int | None, compacted: bool) -> bool:
    """Whether it did not exist. Raises SqlError."""
    config = {"max.message.bytes": str(limits.TOPIC_BYTES)}
    if compacted:
        config["cleanup.policy"] = "compact"
    copies = replicas or settings.CONSOLE.topic_replication
    return _ask(lambda: topic_create(_admin(), Topic(topic, partitions, copies, config), _SECONDS))


def topic_delete(topic: str) -> None:
    """Raises SqlError."""

    def delete() -> None:
        try:
            _admin().delete_topics([topic], request_timeout=_SECONDS)[topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise

    _ask(delete)


def topic_of_reading() -> str:
    """A name for a topic of Headrace's own, with the rows of a query that is read."""
    return f"firehose_sql_{uuid7()}"


@contextmanager
def kafka_errors() -> Iterator[None]:
    """Raises SqlError for a KafkaException."""
    try:
        yield
    except KafkaException as error:
        raise SqlError(f"Kafka does not do this: {error.args[0].str()}.", status=502) from None


def _ask(question: Callable[[], T]) -> T:
    with kafka_errors():
        return question()


@lru_cache  # a client that is garbage-collected cancels its requests
def _admin() -> AdminClient:
    return AdminClient({**platform_settings().kafka.client(), "log_level": 0})
