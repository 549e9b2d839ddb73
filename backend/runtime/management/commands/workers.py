import asyncio
import signal
from argparse import ArgumentParser
from collections.abc import Callable, Coroutine
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from backend.apps.demo import generator
from backend.apps.demo.services import demo_facts

Worker = Callable[[], Coroutine[Any, Any, None]]


def _demo_generator() -> Coroutine[Any, Any, None]:
    facts = demo_facts()
    return generator.run(
        redis_url=settings.REDIS_URL,
        ingest_url=settings.CONSOLE.ingest_url,
        api_key=facts["api_key"],
        pipeline_ids=list(facts["pipelines"].values()),
    )


def _workers() -> dict[str, Worker]:
    return {"demo-generator": _demo_generator} if settings.CONSOLE.embedded else {}


class Command(BaseCommand):
    help = "Runs the background workers that are neither Celery tasks nor Spark jobs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--only", choices=sorted(_workers()), help="run one worker")

    def handle(self, *args: Any, **options: Any) -> None:
        chosen = {name: worker for name, worker in _workers().items() if options["only"] in (None, name)}
        coroutines = [worker() for worker in chosen.values()]
        asyncio.run(self._run(coroutines))

    async def _run(self, coroutines: list[Coroutine[Any, Any, None]]) -> None:
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(coroutine) for coroutine in coroutines]
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        stopped: asyncio.Task[Any] = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for task in done - {stopped}:
            task.result()  # a worker that failed ends the process, and the supervisor starts it again
