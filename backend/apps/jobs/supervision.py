"""The supervision of the Spark jobs, which every worker runs."""

import logging
import socket
import threading

from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections, connection

from backend.apps.jobs import spark
from backend.apps.jobs.services import jobs_reconcile, jobs_release

log = logging.getLogger(__name__)

_INTERVAL_SECONDS = 3.0


def run(stop: threading.Event) -> None:
    """Reconciles the jobs every few seconds until ``stop`` is set. Nothing ends it: nobody else restarts jobs."""
    host = socket.gethostname()
    try:
        spark.prepare()  # outside of a round, in which the jobs' leases would end
    except OSError:
        log.exception("The code of Spark's executors could not be packed.")
    while not stop.is_set():
        close_old_connections()
        try:
            jobs_reconcile(host=host)
        except (DatabaseError, InterfaceError) as error:
            log.warning("Jobs cannot be supervised now: %s", str(error).partition("\n")[0])
            connection.close()
        except Exception:
            log.exception("A round of supervision failed.")
        stop.wait(_INTERVAL_SECONDS)
    connection.close()


def end() -> None:
    """Releases this host's jobs, since a container ends with its worker. In the embedded installation, where the worker
    is restarted alone, they go on."""
    if settings.CONSOLE.embedded:
        return
    try:
        jobs_release(host=socket.gethostname())
    except (DatabaseError, InterfaceError) as error:
        log.warning("Jobs are not released: %s", str(error).partition("\n")[0])
