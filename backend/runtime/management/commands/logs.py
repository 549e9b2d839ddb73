import contextlib
import subprocess
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from backend.runtime.layout import Layout, var_folder


class Command(BaseCommand):
    help = "Shows the logs of all processes, or of one."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", nargs="?", help="a process, as `manage.py status` names it")
        parser.add_argument("-n", "--lines", type=int, default=20)
        parser.add_argument("-f", "--follow", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        folder = Layout(var_folder()).log
        known = {path.stem.removeprefix("spark-"): path for path in sorted(folder.glob("*.log"))}
        name = options["name"]
        if name and name not in known:
            raise CommandError(f"There is no log of {name!r}; choose one of: {', '.join(known) or 'none yet'}.")
        files = [known[name]] if name else list(known.values())
        command = ["tail", "-n", str(options["lines"]), *(["-F"] if options["follow"] else []), *map(str, files)]
        with contextlib.suppress(KeyboardInterrupt):
            subprocess.run(command, check=False)
