from celery import shared_task

from backend.apps.monitoring import alerts


@shared_task  # type: ignore[untyped-decorator]
def alerts_evaluate() -> None:
    alerts.alerts_evaluate()
