"""SeaweedFS for the tests: a store with the API of Amazon S3, which checks signatures."""

from collections.abc import Iterator

import pytest

from backend.domain import json
from tests.infra import VAR, Server
from tests.ports import free_ports
from tests.waiting import answers
from tests.wheel_programs import program_of

ACCESS_KEY, SECRET_KEY = "headrace", "secret-of-seaweedfs"
_PARTS = ("master", "volume", "filer", "s3", "admin")
_PORTS = dict(zip([*_PARTS, *(f"{part}.grpc" for part in _PARTS)], free_ports(2 * len(_PARTS)), strict=True))
ENDPOINT = f"http://127.0.0.1:{_PORTS['s3']}"


def seaweedfs_server() -> Server:
    """Not yet started."""
    folder = VAR / "seaweedfs"
    folder.mkdir()
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List"],
    }
    (folder / "s3.json").write_bytes(json.dumps({"identities": [identity]}))
    ports = [f"-{part}.port{grpc}={_PORTS[part + grpc]}" for part in _PARTS for grpc in ("", ".grpc")]
    command = [program_of("seaweedfs", "SEAWEEDFS_VERSION", "bin/weed"), "mini", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-dir={folder}", f"-s3.config={folder}/s3.json", *ports, "-s3.port.iceberg=0", "-webdav=false"]
    # As many volumes as it has by itself depend on the disk's free space, and each bucket takes several.
    command += ["-master.volumeSizeLimitMB=64", "-volume.max=200"]
    return Server(
        "seaweedfs", [*command, "-admin.ui=false", "-master.telemetry=false"], lambda: answers(f"{ENDPOINT}/healthz")
    )


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[Server]:
    server = seaweedfs_server()
    server.start()
    yield server
    server.stop()
