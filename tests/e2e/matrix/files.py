"""Files in object stores, on SFTP servers and in local folders."""

import uuid
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import requests
from azure.storage.blob import ContainerClient
from botocore.session import get_session

from tests import azurite, gcs
from tests.e2e.matrix.ends import End, Inlet, Outlet, Record, bodies_of, parsed
from tests.infra import FILES_ROOT
from tests.seaweedfs import ACCESS_KEY, ENDPOINT, SECRET_KEY
from tests.sftp import folder_of, sftp_server, user_connection
from tests.waiting import LIMIT_SECONDS


class _Store(End):
    """A place for files."""

    options = {}

    @abstractmethod
    def put(self, name: str, body: bytes) -> None: ...

    @abstractmethod
    def files(self) -> list[bytes]:
        """The contents of every file."""


class _Inlet(_Store, Inlet):
    options = {"format": {"type": "json_lines"}, "prefix": "in/", "settle_seconds": 0}

    def write(self, records: Sequence[Record]) -> None:
        bodies = bodies_of(records)
        for number, part in enumerate((bodies[:3], bodies[3:])):
            self.put(f"in/{number}.jsonl", b"\n".join(part))


class _Outlet(_Store, Outlet):
    output: ClassVar[dict[str, Any]] = {
        "files": {"format": "jsonl", "compression": "none", "name": "out/{number}", "rows": 2, "minutes": 0.2}
    }

    def read(self) -> list[Record]:
        return [parsed(line) for file in self.files() for line in file.splitlines()]


class _S3(_Store):
    type, fixtures = "s3", ("seaweedfs",)

    def __init__(self) -> None:
        super().__init__()
        access = {"type": "access_key", "access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}
        self.bucket = f"b-{uuid.uuid4().hex}"
        self.connection = {"bucket": self.bucket, "endpoint": ENDPOINT, "access": access}
        self.store: Any = get_session().create_client(
            "s3",
            endpoint_url=ENDPOINT,
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )
        self.store.create_bucket(Bucket=self.bucket)

    def put(self, name: str, body: bytes) -> None:
        self.store.put_object(Bucket=self.bucket, Key=name, Body=body)

    def files(self) -> list[bytes]:
        listed = self.store.list_objects_v2(Bucket=self.bucket).get("Contents", ())
        return [self.store.get_object(Bucket=self.bucket, Key=entry["Key"])["Body"].read() for entry in listed]

    def close(self) -> None:
        self.store.close()


class _Gcs(_Store):
    type, servers = "gcs", (gcs.gcs_server,)

    def __init__(self) -> None:
        super().__init__()
        self.connection = {"bucket": f"b-{uuid.uuid4().hex}", "access": gcs.ACCESS}
        gcs.make_bucket(self.connection["bucket"])
        self._objects = f"http://{gcs.ENDPOINT}/storage/v1/b/{self.connection['bucket']}/o"

    def put(self, name: str, body: bytes) -> None:
        url, parameters = self._objects.replace("/storage", "/upload/storage"), {"uploadType": "media", "name": name}
        requests.post(url, params=parameters, data=body, timeout=LIMIT_SECONDS).raise_for_status()

    def files(self) -> list[bytes]:
        names = [item["name"] for item in requests.get(self._objects, timeout=LIMIT_SECONDS).json().get("items", ())]
        urls = [f"{self._objects}/{quote(name, safe='')}?alt=media" for name in names]
        return [requests.get(url, timeout=LIMIT_SECONDS).content for url in urls]


class _Azure(_Store):
    type, servers = "azure_blob", (azurite.azurite_server,)

    def __init__(self) -> None:
        super().__init__()
        name = f"c-{uuid.uuid4().hex}"
        access = {"type": "key", "account": azurite.ACCOUNT, "key": azurite.KEY}
        self.connection = {"container": name, "endpoint": azurite.ENDPOINT, "access": access}
        credential = {"account_name": azurite.ACCOUNT, "account_key": azurite.KEY}
        self._container = ContainerClient(azurite.ENDPOINT, name, credential=credential)
        self._container.create_container()

    def put(self, name: str, body: bytes) -> None:
        self._container.upload_blob(name, body)

    def files(self) -> list[bytes]:
        # Others mark unfinished files, and may vanish.
        blobs = list(self._container.list_blobs(name_starts_with="out/"))
        return [self._container.download_blob(blob.name).readall() for blob in blobs]

    def close(self) -> None:
        self._container.close()


class _Folder(_Store):
    """A folder of this machine."""

    folder: Path

    def put(self, name: str, body: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)

    def files(self) -> list[bytes]:
        # What is being written has a hidden name.
        return [path.read_bytes() for path in self.folder.rglob("*") if path.is_file() and path.name[0] != "."]


class _Sftp(_Folder):
    type, servers = "sftp", (sftp_server,)

    def __init__(self) -> None:
        super().__init__()
        self.connection = user_connection()
        self.folder = folder_of(self.connection)
        self.folder.mkdir(parents=True)


class _Local(_Folder):
    type = "local_files"

    def __init__(self) -> None:
        super().__init__()
        self.connection = {"folder": self.name}
        self.folder = FILES_ROOT / self.name
        self.folder.mkdir()


class S3Inlet(_S3, _Inlet):
    pass


class S3Outlet(_S3, _Outlet):
    pass


class GcsInlet(_Gcs, _Inlet):
    pass


class GcsOutlet(_Gcs, _Outlet):
    pass


class AzureInlet(_Azure, _Inlet):
    pass


class AzureOutlet(_Azure, _Outlet):
    pass


class SftpInlet(_Sftp, _Inlet):
    pass


class SftpOutlet(_Sftp, _Outlet):
    pass


class LocalInlet(_Local, _Inlet):
    pass


class LocalOutlet(_Local, _Outlet):
    pass
