from argparse import ArgumentParser
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from backend.apps.deliveries.reconcile import WorkersBehindError, reconcile
from backend.network.postgresql import answers_within


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class Command(BaseCommand):
    help = "Checks that usage equals deliveries over a range, and exits with an error if it does not."

    def add_arguments(self, parser: ArgumentParser) -> None:
        now = datetime.now(UTC).replace(second=0, microsecond=0)
        parser.add_argument("--since", type=_time, default=now - timedelta(days=1), help="ISO 8601; default: a day ago")
        parser.add_argument("--until", type=_time, default=now, help="ISO 8601; default: the current minute")

    @answers_within(None)
    def handle(self, *args: Any, **options: Any) -> None:
        try:
            result = reconcile(options["since"], options["until"])
        except WorkersBehindError as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"From {options['since']:%Y-%m-%d %H:%M} to {options['until']:%Y-%m-%d %H:%M} UTC:")
        self.stdout.write(f"{result.messages:>12,} messages that Kafka still has")
        self.stdout.write(f"{result.deliveries:>12,} deliveries of these, to be billed or dead letters")
        self.stdout.write(f"{result.unbilled_total:>12,} of these unbilled")
        self.stdout.write(f"{result.billed:>12,} deliveries billed")
        self.stdout.write(f"{result.overbilled_total:>12,} of these without a message")
        self.stdout.write(f"{result.usage:>12,} in usage")
        if result.unknown:
            self.stdout.write(f"{result.unknown:>12,} messages of deleted pipelines, which cannot be checked")
        if result.unjudged:
            self.stdout.write(f"{result.unjudged:>12,} billed deliveries whose message Kafka may have removed")
        for pipeline, output, minute, billed, stored in result.differences[:50]:
            self.stdout.write(f"{minute}  {pipeline}/{output}: {billed:,} billed, {stored:,} in usage")
        for unbilled in result.unbilled[:50]:
            self.stdout.write(
                f"Not billed: {unbilled.pipeline_id}/{unbilled.output} {unbilled.message_id} ({unbilled.position})"
            )
        for overbilled in result.overbilled[:50]:
            self.stdout.write(
                f"Billed without a message: {overbilled.pipeline_id}/{overbilled.output} {overbilled.message_id} "
                f"({overbilled.at:%Y-%m-%d %H:%M:%S} UTC)"
            )
        if not result.agrees:
            raise CommandError("Usage and deliveries differ.")
        self.stdout.write("Usage and deliveries agree.")
