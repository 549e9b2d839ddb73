"""Staged messages to compressed CSV in an object store."""

import asyncio
import os
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.domain import json
from backend.domain.message import Message, new_message_id, utc_now
from backend.exports.staging import encode_part
from backend.exports.staging_store import staging_store
from tests import infra
from tests.bench.connectors import peer
from tests.bench.connectors.platform import running_slot, until
from tests.seaweedfs import ACCESS_KEY, ENDPOINT, SECRET_KEY

_PART_ROWS = 50_000
_DISTINCT = 4
COLUMNS = ("id", "customer", "country", "total", "items", "paid", "note")
_TEMPLATES = "templates"


@dataclass
class Run:
    """``cpu`` is the engine's, in seconds; ``peak`` its memory in MiB. Sizes are those of bodies and of files."""

    engine: str
    messages: int
    bytes: int
    stored: int
    seconds: float
    cpu: float
    peak: float

    @property
    def size(self) -> int:
        return self.messages


def whole_parts(messages: int) -> int:
    """So many messages, or some more, that whole parts hold."""
    return -(-messages // _PART_ROWS) * _PART_ROWS


def compare(binary: Path | None, messages: int, rounds: int) -> list[Run]:
    """In turns. A tenth of the messages is stored first, which shows whether memory depends on their number."""
    parts = Parts.make()
    runs: list[Run] = []
    for size, times in ((whole_parts(messages // 10), 1), (messages, rounds)):
        for _ in range(times):
            runs.append(run_headrace(parts, size))
            if binary is not None:
                runs.append(run_peer(binary, parts, size))
            print(*runs[-2:], sep="\n", file=sys.stderr, flush=True)
    runs.append(run_headrace(parts, messages, columns=False))
    return runs


@dataclass
class Parts:
    """Staged parts that are the same again and again: gzip does not look that far back."""

    sizes: list[int]
    """Of the bodies, in bytes."""

    @classmethod
    def make(cls) -> "Parts":
        staging = staging_store(str(infra.VAR / "staging"))
        sizes = []
        for part in range(_DISTINCT):
            rows = [_message(number) for number in range(part * _PART_ROWS, (part + 1) * _PART_ROWS)]
            staging.write(f"{_TEMPLATES}/{part}.parquet", encode_part(rows))
            sizes.append(sum(len(row.body) for row in rows))
        return cls(sizes)

    def link(self, folder: str, messages: int) -> list[tuple[str, int]]:
        """Parts with so many messages in the folder: their paths below the staging's and the sizes of their bodies."""
        staging = infra.VAR / "staging"
        (staging / folder).mkdir(parents=True)
        linked = []
        for number in range(messages // _PART_ROWS):
            path = f"{folder}/{number:05d}.parquet"
            os.link(staging / _TEMPLATES / f"{number % _DISTINCT}.parquet", staging / path)
            linked.append((path, self.sizes[number % _DISTINCT]))
        return linked


def _message(number: int) -> Message:
    body = {
        "id": number,
        "customer": f"Customer {number % 9973}",
        "country": ("BR", "PT", "DE")[number % 3],
        "total": f"{number % 100_000 / 100:.2f}",
        "items": number % 7,
        "paid": number % 2 == 0,
        "note": 'says "hello", and more',
    }
    key = str(number % 1000).encode()
    return Message(new_message_id(), "p", 1, key, json.dumps(body), "application/json", utc_now(), ())


class Bucket:
    """A bucket of its own for each run."""

    def __init__(self) -> None:
        self.name = f"bench-{uuid.uuid4().hex[:8]}"

    def make(self) -> None:
        self._run(lambda s3: s3.create_bucket(Bucket=self.name))

    def sizes(self) -> list[int]:
        page = self._run(lambda s3: s3.list_objects_v2(Bucket=self.name))
        assert not page["IsTruncated"]
        return [entry["Size"] for entry in page.get("Contents", ())]

    def remove(self) -> None:
        for entry in self._run(lambda s3: s3.list_objects_v2(Bucket=self.name)).get("Contents", ()):
            self._run(lambda s3, key=entry["Key"]: s3.delete_object(Bucket=self.name, Key=key))
        self._run(lambda s3: s3.delete_bucket(Bucket=self.name))

    def _run(self, call: Any) -> Any:
        from aiobotocore.session import AioSession

        async def run() -> Any:
            client = AioSession().create_client(
                "s3",
                endpoint_url=ENDPOINT,
                region_name="us-east-1",
                aws_access_key_id=ACCESS_KEY,
                aws_secret_access_key=SECRET_KEY,
            )
            async with client as s3:
                return await call(s3)

        return asyncio.run(run())


def run_headrace(parts: Parts, messages: int, *, columns: bool = True) -> Run:
    """One file. Without named columns every message is read twice: first to know the columns."""
    from backend.apps.exports.models import Export, StagedPart
    from backend.apps.exports.services import exports_close
    from backend.apps.pipelines.services import pipeline_publish
    from tests import factories

    bucket = Bucket()
    bucket.make()
    workspace = factories.make_workspace()
    access = {"type": "access_key", "access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}
    store = factories.make_connector(workspace, type="s3", bucket=bucket.name, endpoint=ENDPOINT, access=access)
    files: dict[str, Any] = {"format": "csv", "compression": "gzip", "rows": messages, "name": "{number}"}
    if columns:
        files |= {"columns": [{"path": name} for name in COLUMNS], "message_fields": False}
    output = factories.output(store, name="files", files=files)
    pipeline = factories.make_pipeline(workspace, outputs=[output])
    actor = factories.admin_of(workspace)
    pipeline_publish(pipeline=pipeline, actor=actor)
    linked = parts.link(str(pipeline.pk), messages)
    exports = Export.objects.filter(pipeline_id=pipeline.pk)
    with running_slot("exporter") as slot:
        StagedPart.objects.bulk_create(
            StagedPart(
                workspace_id=workspace.pk, pipeline_id=pipeline.pk, output="files", version=1,
                path=path, rows=_PART_ROWS, bytes=size,
            )
            for path, size in linked
        )  # fmt: skip
        exports_close(pipeline=pipeline, output="files", actor=actor)
        until(lambda: exports.filter(state=Export.State.WRITING).exists())
        with slot.used() as used:
            began = _now()
            until(lambda: not exports.exclude(state=Export.State.COMMITTED).exists())
        export = exports.get()
        assert export.manifest is not None
        assert export.manifest["rows"] == messages
        assert export.manifest["bytes"] == sum(bucket.sizes())
        seconds = (export.committed_at - began).total_seconds()
    bucket.remove()
    name = "Headrace" if columns else "Headrace, columns not named"
    return Run(name, messages, export.bytes, export.manifest["bytes"], seconds, used.cpu, used.peak)


def _now() -> Any:
    from django.utils import timezone

    return timezone.now()


def run_peer(binary: Path, parts: Parts, messages: int) -> Run:
    """An object for each part."""
    bucket = Bucket()
    bucket.make()
    folder = f"peer-{uuid.uuid4().hex[:8]}"
    linked = parts.link(folder, messages)
    paths = [str(infra.VAR / "staging" / path) for path, _ in linked]
    ran = peer.run(binary, peer.parts_to_store(paths, bucket.name))
    sizes = bucket.sizes()
    assert len(sizes) == len(paths)
    bucket.remove()
    return Run(peer.NAME, messages, sum(size for _, size in linked), sum(sizes), ran.seconds, ran.cpu, ran.peak)
