import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from rich.console import Console

from backend.apps.sql.terminal import Client, UnreachableError, session, show
from backend.domain import json


class Command(BaseCommand):
    help = "Executes statements of Connect SQL: in a session, from the command line, or from standard input."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--url", default=settings.CONSOLE.public_url, help="address of the console")
        parser.add_argument(
            "--key-file",
            type=Path,
            default=settings.CONSOLE.var / "secrets/demo-api-key",
            help="file with the API key; without it, the key of the demo workspace",
        )
        parser.add_argument("--execute", "-e", metavar="STATEMENTS", help="execute these and end")
        parser.add_argument("--json", action="store_true", help="print a line of JSON for each answer, for scripts")
        parser.add_argument(
            "--from-beginning",
            action="store_true",
            help="SELECT … EMIT CHANGES gives the rows that are there already, too",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        client = Client(options["url"], self._key(options["key_file"]), from_beginning=options["from_beginning"])
        text = options["execute"]
        if text is None and sys.stdin.isatty():
            session(client, Console(), settings.CONSOLE.var / "sql-history")
            return
        lines = client.execute(sys.stdin.read() if text is None else text)
        try:
            console = Console(file=self.stdout)  # type: ignore[arg-type]
            executed = self._print(lines) if options["json"] else show(console, lines)
        except UnreachableError as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            return
        if not executed:
            raise CommandError("The statements were not all executed.")

    def _print(self, lines: Iterable[dict[str, Any]]) -> bool:
        executed = True
        for line in lines:
            executed = line["type"] != "error"
            self.stdout.write(json.dumps(line).decode())
        return executed

    def _key(self, file: Path) -> str:
        try:
            return file.read_text().strip()
        except (OSError, UnicodeDecodeError):
            raise CommandError(f"The API key cannot be read from {file}: name its file with --key-file.") from None
