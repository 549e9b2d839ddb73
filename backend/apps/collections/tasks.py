from celery import shared_task

from backend.apps.collections import services


@shared_task  # type: ignore[untyped-decorator]
def collections_maintain() -> None:
    services.collections_maintain()


@shared_task  # type: ignore[untyped-decorator]
def collections_vacuum() -> None:
    services.collections_vacuum()
