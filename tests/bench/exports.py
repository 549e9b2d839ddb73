"""Measures how fast one file of many staged messages is written, and how much memory that takes:
``python -m tests.bench.exports [MESSAGES [CASES]]``. Parts are read from a local folder, and the file goes to one."""

import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

os.environ.setdefault("HEADRACE_PLUGINS", str(Path(__file__).resolve().parents[1] / "plugins"))

from backend.domain.capabilities import Export
from backend.domain.connector import connectors
from backend.domain.export_policy import ExportPolicy
from backend.domain.message import Message, new_message_id, utc_now
from backend.exports.staging import encode_part
from backend.exports.staging_store import staging_store
from backend.exports.writer import _File
from backend.manager_api.exports import HeldExport, Slice

_PART_ROWS = 50_000
_DISTINCT = 4
_CASES = (
    {"format": "csv", "compression": "gzip"},
    {"format": "csv", "compression": "zstd"},
    {
        "format": "csv",
        "compression": "gzip",
        "columns": [{"path": "id"}, {"path": "customer.country"}, {"path": "total"}],
    },
    {"format": "jsonl", "compression": "gzip"},
    {"format": "parquet", "compression": "zstd"},
    {"format": "avro", "compression": "zstd"},
)


def _message(number: int) -> Message:
    body = {
        "id": number,
        "customer": {"name": f"Customer {number % 9973}", "country": ("BR", "PT", "DE")[number % 3]},
        "total": f"{number % 100_000 / 100:.2f}",
        "items": number % 7,
        "paid": number % 2 == 0,
        "note": 'says "hello", and more',
    }
    key = str(number % 1000).encode()
    return Message(new_message_id(), "p", 1, key, json.dumps(body).encode(), "application/json", utc_now(), ())


class _Recorded:
    """The manager's part, which takes no time here."""

    async def record_upload(self, *_: Any) -> None: ...

    async def record_manifest(self, _: Any, manifest: dict[str, Any], preview: Any) -> None:
        self.manifest = manifest


async def _measure(folder: Path, slices: list[Slice], size: int, case: dict[str, Any]) -> None:
    store_type = connectors.get("toy_store")
    capability = store_type.capability(Export)
    assert capability is not None
    store = capability(
        store_type.connection_model.model_validate({"folder": str(folder / "store")}), capability.options_model()
    )
    client = _Recorded()
    writer: Any = SimpleNamespace(
        _client=client, _at=lambda step: None, _staging=staging_store(str(folder / "staging"))
    )
    export = HeldExport(str(uuid4()), "", "p", 1, "files", f"file-{uuid4()}", slices, None, None, False)
    began, cpu = time.perf_counter(), time.process_time()
    await _File(writer, export, store, ExportPolicy.model_validate(case)).write()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    await store.abort(export.upload)
    rows, peak = sum(piece.rows for piece in slices), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    columns = f", {len(case['columns'])} columns" if "columns" in case else ""
    print(
        f"| {case['format']}, {case['compression']}{columns} | {seconds:.0f} s | {rows / seconds:,.0f} | "
        f"{size / seconds / 1e6:.1f} | {rows / cpu:,.0f} | {client.manifest['bytes'] / 1e6:,.0f} MB | {peak:.0f} MB |",
        flush=True,
    )


async def main(messages: int = 1_000_000, cases: int = len(_CASES)) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, size = Path(name), 0
        staging = staging_store(str(folder / "staging"))
        sizes = []
        for part in range(_DISTINCT):
            rows = [_message(number) for number in range(part * _PART_ROWS, (part + 1) * _PART_ROWS)]
            staging.write(f"{part}.parquet", encode_part(rows))
            sizes.append(sum(len(row.body) for row in rows))
        slices = [Slice(f"{n % _DISTINCT}.parquet", 0, _PART_ROWS) for n in range(messages // _PART_ROWS)]
        size = sum(sizes[n % _DISTINCT] for n in range(len(slices)))
        print(f"{messages:,} messages, {size / 1e6:,.0f} MB of bodies\n")
        print("| file | time | rows/s | MB/s | rows/s of CPU | size | peak memory |")
        print("|---|---|---|---|---|---|---|")
        for case in _CASES[:cases]:
            await _measure(folder, slices, size, case)


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:3])))
