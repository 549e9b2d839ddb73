from datetime import timedelta

from celery import shared_task
from django.conf import settings

from backend.apps.deliveries import partitions, services


@shared_task  # type: ignore[untyped-decorator]
def retention() -> None:
    """Enforces the retention limits of attempts and dead letters."""
    console = settings.CONSOLE
    partitions.partitions_ensure()
    partitions.partitions_drop(console.attempts_kept_days)
    services.dead_letters_expire(
        keep=timedelta(days=console.dead_letters_kept_days), most_bytes=console.dead_letters_kept_bytes
    )
