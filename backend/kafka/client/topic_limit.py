"""How large a topic's batches of records may be."""

from confluent_kafka.admin import AdminClient, ConfigResource

_SECONDS = 2.0
_POLL_SECONDS = 0.1


def topic_limit(admin: AdminClient, topic: str) -> int | None:
    """``max.message.bytes``, or None when the cluster does not say. Raises KafkaException."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    [answer] = admin.describe_configs([resource], request_timeout=_SECONDS).values()
    while not answer.done():
        admin.poll(_POLL_SECONDS)  # serves the callbacks that a login by token needs
    limit = answer.result().get("max.message.bytes")
    return int(limit.value) if limit is not None and limit.value else None
