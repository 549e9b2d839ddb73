from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from backend.apps.connectors.secret_store import secrets_reseal
from backend.apps.connectors.secrets import add_key


class Command(BaseCommand):
    help = "Re-encrypts every stored secret with the current key. Can be interrupted and run again, without downtime."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--add-key",
            action="store_true",
            help="first add a new key to the keys file and make it the current one; if several machines have the "
            "file, distribute it to all of them before the key is used",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["add_key"]:
            self.stdout.write(f"Key {add_key(Path(settings.CONSOLE.secret_keys_file))} was added.")
        count, unreadable = secrets_reseal()
        self.stdout.write(f"{count} secrets were re-encrypted with the current key.")
        if unreadable:
            raise CommandError(
                f"The secrets of these cannot be read; save them again: {', '.join(sorted(unreadable))}."
            )
        self.stdout.write("Older keys are no longer needed and may be removed from the keys file.")
