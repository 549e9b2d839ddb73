"""What Prometheus reads of one process: its memory, CPU time and files."""

from prometheus_client import start_http_server

from backend.settings import platform_settings


def serve_metrics() -> None:
    """Answers ``/metrics`` on the port that the environment names, in a thread of its own; without one not at all.

    Counts of messages are the console's, which adds up what all processes report.
    """
    port = platform_settings().metrics_port
    if port:
        start_http_server(port)
