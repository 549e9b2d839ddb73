import contextlib
import subprocess
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from backend.runtime.layout import Layout, var_folder


class Command(BaseCommand):
    help = "Shows the logs of all processes, or of one process."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", nargs="?", help="name of a process, as listed by `manage.py status`")
        parser.add_argument("-n", "--lines", type=int, default=20, help="lines of each log to show first (default: 20)")
        parser.add_argument("-f", "--follow", action="store_true", help="keep printing new lines")

    def handle(self, *args: Any, **options: Any) -> None:
        folder = Layout(var_folder()).log
        available = {path.stem.removeprefix("spark-"): path for path in sorted(folder.glob("*.log"))}
        name = options["name"]
        if name and name not in available:
            raise CommandError(f"There is no log named {name!r}. Available logs: {', '.join(available) or 'none yet'}.")
        files = [available[name]] if name else list(available.values())
        command = ["tail", "-n", str(options["lines"]), *(["-F"] if options["follow"] else []), *map(str, files)]
        with contextlib.suppress(KeyboardInterrupt):
            subprocess.run(command, check=False)
