"""What is stored in PostgreSQL about positions in Kafka's topics, once Kafka was replaced by an empty one."""

from confluent_kafka.admin import AdminClient
from django.db import transaction

from backend.apps.deliveries.sinks import AttemptSink, DeadLetterSink
from backend.apps.exports.staging import staging_restart
from backend.apps.kafka_sink.services import sink_restart, topics_recognize
from backend.apps.usage.sinks import UsageSink
from backend.domain import routing
from backend.domain.stages import all_topics
from backend.kafka.client.topics import topic_ids

SINKS = (AttemptSink, DeadLetterSink, UsageSink)
"""Everything that writes a topic to the database and stores its position there."""


@transaction.atomic
def positions_reconcile(admin: AdminClient) -> list[str]:
    """Forgets positions in topics that were created again, in which other records have these offsets: the first of
    them would never be read. Returns a sentence about each topic. Raises KafkaException."""
    remade = topics_recognize(topic_ids(admin, all_topics()))
    for sink in SINKS:
        if sink.topic in remade:
            sink_restart(sink=sink.name)
    if routing.EXPORT in remade:
        staging_restart()
    return [f"The topic {topic} was created again: it is read from its first record." for topic in sorted(remade)]
