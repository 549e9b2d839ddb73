from celery import shared_task

from backend.apps.sql import imports


@shared_task  # type: ignore[untyped-decorator]
def imports_follow() -> None:
    imports.imports_follow()
