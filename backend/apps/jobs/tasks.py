from celery import shared_task

from backend.apps.jobs import services


@shared_task
def jobs_reconcile() -> None:
    services.jobs_reconcile()
