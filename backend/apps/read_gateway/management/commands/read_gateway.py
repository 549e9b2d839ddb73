import logging
from typing import Any

import uvloop
from django.core.management.base import BaseCommand, CommandError
from pydantic import ValidationError

from backend.apps.read_gateway.services import NodeIdTakenError, gateway, gateway_config, node_id_check
from backend.settings import GatewaySettings


class Command(BaseCommand):
    help = "Runs one node of the read gateway, from which Kafka consumers read collections."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            config = gateway_config(GatewaySettings())
        except ValidationError as error:
            lines = [f"{'.'.join(map(str, e['loc'])) or 'HEADRACE_GATEWAY_…'}: {e['msg']}" for e in error.errors()]
            raise CommandError("The read gateway's settings cannot be used.\n" + "\n".join(lines)) from None
        logging.getLogger("backend.kafka.gateway").setLevel(logging.INFO)
        try:
            node_id_check(config=config)
            uvloop.run(gateway(config).run())
        except NodeIdTakenError as error:
            raise CommandError(str(error)) from None
        except OSError as error:
            raise CommandError(f"The read gateway cannot listen at {config.listen}: {error.strerror}.") from None
