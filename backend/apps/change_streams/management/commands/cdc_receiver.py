import asyncio
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from backend.apps.change_streams.receiver import ReceiverApplication
from backend.kafka.server.http import serve_http
from backend.kafka.server.listen import HostPort, parse_address


class Command(BaseCommand):
    help = "Receives a change stream by PUT, and shows at GET which records there are: the reference of the protocol."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--listen", default="127.0.0.1:9494", help="address, as host:port")
        parser.add_argument("--journal", type=Path, help="file that keeps what was received")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            address = parse_address(options["listen"])
            application = ReceiverApplication(options["journal"])
        except (ValueError, OSError) as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"The receiver listens at http://{address}.")
        try:
            asyncio.run(self._serve(application, address))
        except KeyboardInterrupt:
            return

    async def _serve(self, application: ReceiverApplication, address: HostPort) -> None:
        await serve_http(application, address)
