from datetime import timedelta

from celery import shared_task
from django.conf import settings

from backend.apps.read_gateway.services import consumer_groups_remove_idle


@shared_task  # type: ignore[untyped-decorator]
def consumer_groups_retention() -> None:
    """Removes consumer groups of the read gateway that nobody uses any more."""
    consumer_groups_remove_idle(kept=timedelta(days=settings.CONSOLE.consumer_groups_kept_days))
