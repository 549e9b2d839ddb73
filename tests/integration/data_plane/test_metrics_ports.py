"""Each kind of process has its own port for metrics, and works without it."""

import socket
import urllib.request
from typing import get_args

import pytest

from backend.settings import platform_settings
from backend.telemetry import metrics_server
from tests.ports import free_ports
from tests.waiting import LIMIT_SECONDS


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> int:
    [port] = free_ports(1)
    settings = platform_settings().model_copy(update={"metrics_port": port})
    monkeypatch.setattr(metrics_server, "platform_settings", lambda: settings)
    return port


def test_no_two_kinds_share_a_port(first: int) -> None:
    ports = [metrics_server.metrics_port(kind) for kind in get_args(metrics_server.Kind)]
    assert ports == list(range(first, first + len(ports)))


def test_a_taken_port_is_reported_and_harms_nothing(first: int, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("", first)):
        metrics_server.serve_metrics("ingest")
    assert f"port {first} cannot be opened" in caplog.text
    metrics_server.serve_metrics("ingest")
    with urllib.request.urlopen(f"http://127.0.0.1:{first}/metrics", timeout=LIMIT_SECONDS) as answer:
        assert b"process_resident_memory_bytes" in answer.read()
