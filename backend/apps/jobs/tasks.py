from celery import shared_task

from backend.apps.jobs import services


@shared_task  # type: ignore[untyped-decorator]
def jobs_reconcile() -> None:
    services.jobs_reconcile()
