import logging
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import uvloop
from django.core.management.base import BaseCommand, CommandError

from backend.kafka.proxy.config import ConfigError, load
from backend.kafka.proxy.server import Proxy


class Command(BaseCommand):
    help = "Runs one Kafka proxy. Clients see it and the other proxies instead of the brokers."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--config", type=Path, required=True, help="path of the proxy's YAML configuration")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            config = load(options["config"])
        except ConfigError as error:
            raise CommandError(str(error)) from None
        logging.getLogger("backend.kafka.proxy").setLevel(logging.INFO)
        try:
            uvloop.run(Proxy(config).run())
        except OSError as error:
            raise CommandError(f"The proxy cannot listen at {config.listen}: {error.strerror}.") from None
