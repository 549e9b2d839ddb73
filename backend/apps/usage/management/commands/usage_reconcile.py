from argparse import ArgumentParser
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from backend.apps.usage.reconcile import reconcile


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class Command(BaseCommand):
    help = "Checks that usage equals deliveries over a range, and exits with an error if it does not."

    def add_arguments(self, parser: ArgumentParser) -> None:
        now = datetime.now(UTC).replace(second=0, microsecond=0)
        parser.add_argument("--since", type=_time, default=now - timedelta(days=1), help="ISO 8601; default: a day ago")
        parser.add_argument("--until", type=_time, default=now, help="ISO 8601; default: the current minute")

    def handle(self, *args: Any, **options: Any) -> None:
        result = reconcile(options["since"], options["until"])
        self.stdout.write(f"From {options['since']:%Y-%m-%d %H:%M} to {options['until']:%Y-%m-%d %H:%M} UTC:")
        self.stdout.write(f"{result.events:>12,} billing events")
        self.stdout.write(f"{result.distinct:>12,} distinct deliveries")
        self.stdout.write(f"{result.usage:>12,} in usage")
        for (_, pipeline, output, minute), delivered, stored in result.differences[:50]:
            self.stdout.write(f"{minute}  {pipeline}/{output}: {delivered:,} delivered, {stored:,} in usage")
        for pipeline, output, message in result.repeated[:50]:
            self.stdout.write(f"Billed more than once: {pipeline}/{output} {message}")
        if not result.agrees:
            raise CommandError("Usage and deliveries differ.")
        self.stdout.write("Usage and deliveries agree.")
