from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand

from backend.apps.deliveries.partitions import partitions_ensure
from backend.apps.demo.services import demo_ensure
from backend.apps.jobs.services import job_ensure_default
from backend.domain import routing
from backend.settings import platform_settings


class Command(BaseCommand):
    help = "Migrates the database and creates missing topics. Safe to run at every start."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", interactive=False, verbosity=0)
        partitions_ensure()
        self._create_topics()
        job_ensure_default()
        if settings.CONSOLE.embedded:
            demo_ensure()

    def _create_topics(self) -> None:
        console = settings.CONSOLE
        retention = str(console.topic_retention_hours * 3600 * 1000)
        admin = AdminClient({"bootstrap.servers": platform_settings().kafka_bootstrap_servers})
        topics = [
            NewTopic(
                topic,
                num_partitions=console.topic_partitions,
                replication_factor=console.topic_replication,
                config={"retention.ms": retention, "max.message.bytes": "4194304"},
            )
            for topic in routing.TOPICS
        ]
        for future in admin.create_topics(topics).values():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
