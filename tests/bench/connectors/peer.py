"""Benthos 4.27, which reads the same table, writes the same rows and stores the same staged parts with its components
``sql_select``, ``sql_insert`` and ``aws_s3``."""

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests import infra
from tests.bench.connectors.platform import SOURCE_URL, Measured
from tests.ports import free_ports
from tests.seaweedfs import ACCESS_KEY, ENDPOINT, SECRET_KEY

NAME = "Benthos 4.27"


@dataclass
class Ran:
    seconds: float
    cpu: float
    peak: float
    """MiB."""


def run(binary: Path, config: Mapping[str, Any]) -> Ran:
    """Until it ends, which it does at the end of its input."""
    began = time.monotonic()
    process = _started(binary, config)
    measured = Measured(process)
    cpu = peak = 0.0
    while process.poll() is None:
        # An ended process that was not waited for has no memory any more.
        with suppress(ValueError, IndexError, OSError):
            cpu, peak = measured.cpu(), measured.peak()
        time.sleep(0.05)
    if process.returncode != 0:
        raise RuntimeError((infra.VAR / "benthos.log").read_text()[-2000:])
    return Ran(time.monotonic() - began, cpu, peak)


@contextmanager
def running(binary: Path, config: Mapping[str, Any]) -> Iterator[Measured]:
    """One whose input has no end."""
    process = _started(binary, config)
    try:
        yield Measured(process)
    finally:
        process.terminate()
        process.wait(60)


def _started(binary: Path, config: Mapping[str, Any]) -> "subprocess.Popen[Any]":
    file = infra.VAR / "benthos.yaml"
    http = {"address": f"127.0.0.1:{free_ports(1)[0]}"}
    file.write_text(yaml.safe_dump({"http": http, "logger": {"level": "WARN"}, **config}))
    with (infra.VAR / "benthos.log").open("ab") as log:
        return subprocess.Popen([str(binary.resolve()), "-c", str(file)], stdout=log, stderr=log)


def topic_to_table(topic: str, group: str, table: str, batch: int, connections: int) -> dict[str, Any]:
    columns = ["id", "customer", "country", "total", "items", "paid", "created_at", "note"]
    updates = ", ".join(f"{column} = EXCLUDED.{column}" for column in columns[1:])
    return {
        "input": {
            "kafka_franz": {
                "seed_brokers": [infra.KAFKA],
                "topics": [topic],
                "consumer_group": group,
                "start_from_oldest": True,
                "commit_period": "200ms",
            }
        },
        "output": {
            "sql_insert": {
                "driver": "postgres",
                "dsn": f"{SOURCE_URL}?sslmode=disable",
                "table": table,
                "columns": columns,
                "args_mapping": f"root = [ {', '.join(f'this.{column}' for column in columns)} ]",
                "suffix": f"ON CONFLICT (id) DO UPDATE SET {updates}",
                "max_in_flight": connections,
                "batching": {"count": batch, "period": "200ms"},
            }
        },
    }


def table_to_kafka(table: str, topic: str) -> dict[str, Any]:
    return {
        "input": {
            "sql_select": {
                "driver": "postgres",
                "dsn": f"{SOURCE_URL}?sslmode=disable",
                "table": table,
                "columns": ["*"],
            }
        },
        "output": {
            "kafka_franz": {
                "seed_brokers": [infra.KAFKA],
                "topic": topic,
                "key": '${! json("id") }',
                "compression": "lz4",
                "max_in_flight": 16,
                "batching": {"count": 1000, "period": "20ms"},
            }
        },
    }


_CSV = r"""
let row = this.body.string().parse_json()
let cells = [ $row.id.string(), $row.customer, $row.country, $row.total, $row.items.string(), $row.paid.string(),
  $row.note ]
root = $cells.map_each(cell -> if cell.contains("\"") || cell.contains(",") || cell.contains("\n") {
  "\"" + cell.replace_all("\"", "\"\"") + "\""
} else { cell }).join(",")
"""


def parts_to_store(paths: list[str], bucket: str) -> dict[str, Any]:
    return {
        "input": {"file": {"paths": paths, "codec": "all-bytes"}},
        "pipeline": {
            "threads": -1,
            "processors": [
                {"parquet_decode": {}},
                {"mapping": _CSV},
                {"archive": {"format": "lines"}},
                {"compress": {"algorithm": "gzip", "level": 6}},
            ],
        },
        "output": {
            "aws_s3": {
                "bucket": bucket,
                "path": '${! count("files") }.csv.gz',
                "max_in_flight": 4,
                "endpoint": ENDPOINT,
                "region": "us-east-1",
                "force_path_style_urls": True,
                "credentials": {"id": ACCESS_KEY, "secret": SECRET_KEY},
            }
        },
    }
