from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from backend.apps.connectors.secret_store import secrets_reseal
from backend.apps.connectors.secrets import add_key


class Command(BaseCommand):
    help = "Seals every stored secret with the current key. May be interrupted and run again; nothing stops meanwhile."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--add-key",
            action="store_true",
            help="first add a fresh key to the keys file and make it the current one; where several machines have "
            "the file, put it there before it is used",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["add_key"]:
            self.stdout.write(f"Key {add_key(Path(settings.CONSOLE.secret_keys_file))} was added.")
        count, unreadable = secrets_reseal()
        self.stdout.write(f"{count} secrets were sealed with the current key.")
        if unreadable:
            raise CommandError(
                f"These connectors' secrets cannot be read; save them again: {', '.join(sorted(unreadable))}."
            )
        self.stdout.write("Older keys are no longer needed and may be taken out of the keys file.")
