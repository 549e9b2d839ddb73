import asyncio
import signal
from typing import Any

import grpc
from django.core.management.base import BaseCommand, CommandError

from backend.apps.manager.grpc import keep_snapshot, serve
from backend.manager_api.credentials import NoCredentialsError, server_credentials
from backend.network import tasks
from backend.settings import platform_settings
from backend.telemetry.metrics_server import serve_metrics


class Command(BaseCommand):
    help = "Serves the configuration to the data plane over gRPC."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            credentials = server_credentials(platform_settings())
        except (NoCredentialsError, OSError) as error:
            raise CommandError(str(error)) from None
        serve_metrics("manager")
        asyncio.run(self._serve(credentials))

    async def _serve(self, credentials: grpc.ServerCredentials | None) -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        settings = platform_settings()
        snapshot_writer = asyncio.create_task(keep_snapshot())
        try:
            await serve(
                address=settings.manager_address,
                service_token=settings.service_token.get_secret_value(),
                redis_url=settings.redis_url,
                stop=stop,
                credentials=credentials,
            )
        finally:
            await tasks.cancel(snapshot_writer)
