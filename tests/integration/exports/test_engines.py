"""What others read files with reads what was exported."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from backend.runtime.layout import Layout
from tests.engines import duckdb_output, spark_output
from tests.unit.test_export_formats import staged, written

COLUMNS = [
    {"path": "id", "type": "integer"},
    {"path": "text", "type": "text"},
    {"path": "price", "type": "number"},
    {"path": "flag", "type": "boolean"},
    {"path": "placed", "type": "timestamp"},
    {"path": "document", "type": "json"},
]
AT = "2026-03-01T12:00:00.123456+02:00"
ROWS: list[dict[str, Any]] = [
    {"id": 2**63 - 1, "text": 'ação, "quoted"\nnext; 🚆\ttab \\', "price": 0.1, "flag": True, "placed": AT},
    {"id": -5, "text": "'", "price": 1e300, "flag": False, "document": {"a": [1, None, {"b": 'x"'}]}},
    {"id": 0},
]
EXPECTED = [
    [
        row["id"],
        row.get("text"),
        row.get("price"),
        row.get("flag"),
        int(datetime.fromisoformat(AT).timestamp() * 1_000_000) if "placed" in row else None,
        row.get("document"),
    ]
    for row in ROWS
]

DUCKDB = """
import json, sys
sys.path.insert(0, sys.argv[1])
import duckdb
types = "{id: 'BIGINT', text: 'VARCHAR', price: 'DOUBLE', flag: 'BOOLEAN', placed: 'TIMESTAMPTZ', document: 'VARCHAR'}"
readers = {
    "csv": f"read_csv('%s', header = true, types = {types})",
    "jsonl": f"read_json('%s', format = 'newline_delimited', columns = {types})",
    "parquet": "read_parquet('%s')",
}
for format, path in (argument.split("=") for argument in sys.argv[2:]):
    rows = duckdb.sql("SELECT id, text, price, flag, epoch_us(placed), document FROM " + readers[format] % path)
    print(json.dumps(rows.fetchall()))
"""

SPARK = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.jars", sys.argv[1])
spark = builder.config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC").getOrCreate()
schema = "id BIGINT, text STRING, price DOUBLE, flag BOOLEAN, placed TIMESTAMP, document STRING"
readers = {
    "csv": lambda: spark.read.schema(schema).csv(path, header=True, multiLine=True, escape='"'),
    "jsonl": lambda: spark.read.schema(schema).json(path),
    "parquet": lambda: spark.read.parquet(path),
    "avro": lambda: spark.read.format("avro").load(path),
}
for format, path in (argument.split("=") for argument in sys.argv[2:]):
    rows = readers[format]().selectExpr("id", "text", "price", "flag", "unix_micros(placed)", "document").collect()
    print(json.dumps([list(row) for row in rows]))
"""

_IVY = """<ivy-module version="2.0">
  <info organisation="headrace" module="spark_avro"/>
  <configurations><conf name="spark_avro"/></configurations>
  <dependencies>
    <dependency org="org.apache.spark" name="spark-avro_{SCALA_VERSION}" rev="{SPARK_VERSION}"
                conf="spark_avro->master" transitive="false"/>
  </dependencies>
</ivy-module>
"""
_SUFFIXES = {"none": "", "gzip": ".gz", "zstd": ".zst"}


def files(folder: Path, *kinds: tuple[str, str]) -> list[str]:
    """One of each format and compression, as FORMAT=PATH."""
    made = []
    for format, compression in kinds:
        suffix = _SUFFIXES[compression] if format in ("csv", "jsonl") else ""
        path = folder / f"orders-{compression}.{format}{suffix}"
        named = [{"path": column["path"]} for column in COLUMNS]
        columns = COLUMNS if format in ("parquet", "avro") else named
        path.write_bytes(written(staged(ROWS), format=format, compression=compression, columns=columns))
        made.append(f"{format}={path}")
    return made


def check(output: str, count: int) -> None:
    read = [json.loads(line) for line in output.splitlines()]
    assert len(read) == count
    for rows in read:
        for row in rows:
            row[5] = json.loads(row[5]) if row[5] else None
        assert rows == EXPECTED


def test_duckdb(tmp_path: Path) -> None:
    kinds = [(format, compression) for format in ("csv", "jsonl", "parquet") for compression in _SUFFIXES]
    check(duckdb_output(DUCKDB, *files(tmp_path, *kinds)), len(kinds))


def test_spark(project_layout: Layout, tmp_path: Path) -> None:
    """It reads zstd of CSV and JSON lines only with Hadoop's native libraries."""
    kinds = [
        *((format, compression) for format in ("csv", "jsonl") for compression in ("none", "gzip")),
        *(("parquet", compression) for compression in _SUFFIXES),
        *(("avro", compression) for compression in ("none", "zstd")),
    ]
    output = spark_output(SPARK, project_layout, "spark_avro", _IVY, *files(tmp_path, *kinds))
    check(output, len(kinds))
