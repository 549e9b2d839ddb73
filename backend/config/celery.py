"""The Celery application: ``celery -A backend.config.celery worker --beat``."""

import os

from celery import Celery
from celery.signals import worker_ready

from backend.telemetry.metrics_server import serve_metrics

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.config.settings.dev")

app = Celery("headrace")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


def _serve_metrics(**_: object) -> None:
    serve_metrics()


worker_ready.connect(_serve_metrics)
