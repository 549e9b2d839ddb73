from celery import shared_task

from backend.apps.pipelines import services
from backend.apps.pipelines.provisioning.saga import removals_advance


@shared_task  # type: ignore[untyped-decorator]
def provisionings_advance() -> None:
    services.provisionings_advance()
    removals_advance()
