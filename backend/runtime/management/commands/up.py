import signal
import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from backend.runtime.errors import CannotStartError
from backend.runtime.installation import down, status, up, wait_until_down
from backend.runtime.layout import Layout, var_folder


class Command(BaseCommand):
    help = "Starts the whole platform on this machine and runs it until Ctrl-C."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--port-offset", type=int, default=0, help="number to add to every port")
        parser.add_argument(
            "--detach", action="store_true", help="return once everything is ready, and keep it running"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        layout = Layout(var_folder(), options["port_offset"])
        _on_signals(signal.default_int_handler)  # shells ignore SIGINT for background processes
        started = time.monotonic()
        try:
            problems = up(layout)
        except CannotStartError as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            raise CommandError("Stopped before everything was ready.") from None
        self._welcome(layout, time.monotonic() - started, problems)
        if options["detach"]:
            return
        try:
            wait_until_down(layout)
            self.stdout.write("\nHeadrace has been stopped.")
        except KeyboardInterrupt:
            self.stdout.write("\nStopping.")
            _on_signals(signal.SIG_IGN)  # a second Ctrl-C must not interrupt the shutdown
            down(layout)

    def _welcome(self, layout: Layout, seconds: float, problems: list[str]) -> None:
        endpoints = status(layout)["endpoints"]
        password = (layout.secrets / "admin-password").read_text().strip()
        self.stdout.write(
            f"\n{'Headrace' if not problems else 'The console'} is ready after {seconds:.0f} s.\n\n"
            f"  Console   {endpoints['console']}\n"
            f"  Login     admin / {password}\n"
            f"  Ingest    {endpoints['ingest']}\n"
            f"  API       {endpoints['api']}schema/\n"
        )
        for problem in problems:
            self.stderr.write(f"{problem}\n")


def _on_signals(handler: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)
