"""Metrics of one process for Prometheus: memory, CPU time and open files."""

from prometheus_client import start_http_server

from backend.settings import platform_settings


def serve_metrics() -> None:
    """Serves ``/metrics`` in a separate thread, if HEADRACE_METRICS_PORT is set.

    Message counts are served by the console, which adds up those of all processes.
    """
    port = platform_settings().metrics_port
    if port:
        start_http_server(port)
