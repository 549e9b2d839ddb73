from celery import shared_task

from backend.apps.identity import renewal


@shared_task  # type: ignore[untyped-decorator]
def sessions_expire() -> None:
    renewal.sessions_expire()
