"""Metrics of one process for Prometheus: memory, CPU time and open files."""

import logging
from typing import Literal, get_args

from prometheus_client import start_http_server

from backend.settings import platform_settings

log = logging.getLogger(__name__)

Kind = Literal["ingest", "manager", "worker", "workers", "driver"]
"""The processes in the order of their ports, from HEADRACE_METRICS_PORT on."""


def metrics_port(kind: Kind) -> int:
    """The port of this kind of process; 0 when metrics are disabled."""
    first = platform_settings().metrics_port
    return first + get_args(Kind).index(kind) if first else 0


def serve_metrics(kind: Kind) -> None:
    """Serves ``/metrics`` in a separate thread, if HEADRACE_METRICS_PORT is set. A process whose port is taken works
    without them.

    Message counts are served by the console, which adds up those of all processes.
    """
    port = metrics_port(kind)
    if port:
        try:
            start_http_server(port)
        except OSError as error:
            log.error("No metrics of this process (%s): port %d cannot be opened: %s", kind, port, error)
