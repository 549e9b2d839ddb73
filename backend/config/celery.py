"""The Celery application: ``celery -A backend.config.celery worker --beat``."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "backend.config.settings.dev")

app = Celery("headrace")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
