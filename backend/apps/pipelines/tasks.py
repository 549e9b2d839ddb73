import functools
import threading
from collections.abc import Callable

from celery import shared_task

from backend.apps.pipelines import services
from backend.apps.pipelines.provisioning import registrations
from backend.apps.pipelines.provisioning.saga import removals_advance

_Task = Callable[[], None]


def _at_most(rounds: int) -> Callable[[_Task], _Task]:
    """Does nothing while this worker runs that many rounds of the task: systems that hang must not occupy all of its
    threads (``CELERY_WORKER_CONCURRENCY``), which other tasks need."""
    running = threading.BoundedSemaphore(rounds)

    def limited(task: _Task) -> _Task:
        @functools.wraps(task)
        def run() -> None:
            if running.acquire(blocking=False):
                try:
                    task()
                finally:
                    running.release()

        return run

    return limited


@shared_task  # type: ignore[untyped-decorator]
@_at_most(3)
def provisionings_advance() -> None:
    services.provisionings_advance()
    removals_advance()
    registrations.registrations_remove()


@shared_task  # type: ignore[untyped-decorator]
@_at_most(1)
def registrations_watch() -> None:
    registrations.registrations_watch()
