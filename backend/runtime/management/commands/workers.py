import asyncio
import functools
import signal
import threading
from argparse import ArgumentParser
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from backend.apps.change_streams import worker as change_streams
from backend.apps.deliveries import events, ledger
from backend.apps.deliveries.redelivery import Redelivery
from backend.apps.deliveries.sinks import AttemptSink, DeadLetterSink
from backend.apps.demo import generator
from backend.apps.demo.services import demo_facts
from backend.apps.kafka_sink.sink import run
from backend.apps.monitoring import history
from backend.apps.usage.sinks import UsageSink
from backend.telemetry.metrics_server import serve_metrics

Worker = Callable[[threading.Event], None]
"""Runs in its own thread until the event is set."""


def _demo_generator(stop: threading.Event) -> None:
    facts = demo_facts()
    asyncio.run(
        generator.run(
            redis_url=settings.REDIS_URL,
            ingest_url=settings.CONSOLE.ingest_url,
            api_key=facts["api_key"],
            pipeline_ids=list(facts["pipelines"].values()),
            stop=stop,
        )
    )


def _workers() -> dict[str, Worker]:
    workers: dict[str, Worker] = {
        "change-streams": change_streams.run,
        "dead-letters": functools.partial(run, DeadLetterSink()),
        "redelivery": lambda stop: Redelivery().run(stop),
        "attempts": functools.partial(run, AttemptSink()),
        "events": events.run,
        "history": history.run,
        "ledger": ledger.run,
        "usage": functools.partial(run, UsageSink()),
    }
    if settings.CONSOLE.embedded:
        workers["demo-generator"] = _demo_generator
    return workers


class Command(BaseCommand):
    help = "Runs the background workers that are neither Celery tasks nor Spark jobs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--only", choices=sorted(_workers()), help="run only this worker")

    def handle(self, *args: Any, **options: Any) -> None:
        selected = {name: worker for name, worker in _workers().items() if options["only"] in (None, name)}
        serve_metrics("workers")
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        with ThreadPoolExecutor(len(selected)) as pool:
            running = [pool.submit(worker, stop) for worker in selected.values()]
            while not stop.is_set() and not any(future.done() for future in running):
                stop.wait(0.5)
            stop.set()
        for future in running:
            future.result()  # a failed worker ends the process, which the supervisor then restarts
