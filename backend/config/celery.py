"""The Celery application: ``celery -A backend.config.celery worker --beat``."""

import ctypes
import os
import signal
import threading
import time
from typing import Any

from celery import Celery, bootsteps
from celery.signals import beat_embedded_init, worker_ready

from backend.network.files import raise_file_limit
from backend.telemetry.metrics_server import serve_metrics

raise_file_limit()
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.config.settings.dev")
os.environ.setdefault("CELERY_SKIP_CHECKS", "yes")  # which would import every page and view

app = Celery("headrace")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

_PR_SET_PDEATHSIG = 1
_ROUND_SECONDS = 10.0
"""A round of supervision takes no longer unless PostgreSQL hangs."""


class Supervision(bootsteps.StartStopStep):  # type: ignore[misc]
    """The worker supervises the Spark jobs, and evaluates alert rules, in threads of their own: neither slow tasks nor
    a broker that is unavailable delay that."""

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._stop = threading.Event()

    def start(self, parent: Any) -> None:
        from backend.apps.jobs import supervision  # needs Django's models, which the worker loads meanwhile
        from backend.apps.monitoring import alerts

        self._threads = [
            threading.Thread(target=run, args=(self._stop,), name=name, daemon=True)
            for name, run in (("jobs", supervision.run), ("alerts", alerts.run))
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, parent: Any) -> None:
        from backend.apps.jobs import supervision

        self._stop.set()
        until = time.monotonic() + _ROUND_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        supervision.end()

    terminate = stop


app.steps["worker"].add(Supervision)


def _serve_metrics(**_: object) -> None:
    serve_metrics("worker")


worker_ready.connect(_serve_metrics)


def _end_with_the_worker(**_: object) -> None:
    """The scheduler's process would outlive a worker that is killed, and the next worker starts one of its own."""
    worker = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != worker:
        os._exit(1)


beat_embedded_init.connect(_end_with_the_worker)
