from celery import shared_task

from backend.apps.exports import forming


@shared_task  # type: ignore[untyped-decorator]
def empty_files_form() -> None:
    forming.empty_files_form()
