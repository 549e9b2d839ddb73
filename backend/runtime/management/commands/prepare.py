import json
import sys
from argparse import ArgumentParser
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from backend.apps.deliveries.partitions import partitions_ensure
from backend.apps.demo.services import demo_ensure
from backend.apps.jobs.models import SparkJob
from backend.apps.jobs.services import job_ensure_default
from backend.apps.pipelines.services import snapshot_keep
from backend.apps.workspaces.services import first_account_ensure
from backend.domain.stages import all_topics
from backend.kafka.client.topics import own_topic, topics_reconcile
from backend.runtime.positions import positions_reconcile
from backend.settings import platform_settings


class Command(BaseCommand):
    help = (
        "Migrates the database, writes the configuration that the data plane starts from, creates missing topics and "
        "checks the others. Safe to run at every start."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--json",
            action="store_true",
            help="wait for a line on standard input before Kafka is asked, go on without Kafka if need be, and print "
            "what is wanted as JSON",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", interactive=False, verbosity=0)
        partitions_ensure()
        job_ensure_default()
        if settings.CONSOLE.embedded:
            demo_ensure()
        elif password := settings.CONSOLE.admin_password.get_secret_value():
            first_account_ensure(password=password)
        if options["json"]:
            sys.stdin.readline()
        snapshot_keep()  # the manager does as well, later
        problems: list[str] = []
        admin = AdminClient(platform_settings().kafka.client())
        try:
            problems += topics_reconcile(admin, [own_topic(name, settings.CONSOLE) for name in all_topics()])
            problems += positions_reconcile(admin)
        except KafkaException as error:
            problem = f"The topics could not be created: {error.args[0].str()}. Run `manage.py prepare` again."
            if not options["json"]:
                raise CommandError(problem) from None
            problems.append(problem)
        if options["json"]:
            jobs = dict(SparkJob.objects.order_by("name").values_list("name", "desired"))
            self.stdout.write(json.dumps({"jobs": jobs, "problems": problems}))
        else:
            for problem in problems:
                self.stderr.write(problem)
