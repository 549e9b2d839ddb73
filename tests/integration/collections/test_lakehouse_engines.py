"""Lakehouse engines read the Delta table of a collection."""

import json
from collections.abc import Iterator
from pathlib import Path

from backend.collections.location import Location
from backend.collections.maintenance import Retention, merge, reduce_to_last
from backend.collections.table import Table
from backend.collections.writer import CollectionWriter, NewDocument
from backend.runtime.layout import Layout
from tests.engines import duckdb_output, spark_output

DUCKDB = """
import json, sys
sys.path.insert(0, sys.argv[1])
import duckdb
from duckdb_extensions import import_extension
import_extension("delta")
connection = duckdb.connect()
connection.execute("LOAD delta")
columns = 'partition, "offset", decode(key), decode(value), deleted, headers[1].key'
rows = connection.execute(f"SELECT {columns} FROM delta_scan('{sys.argv[2]}') ORDER BY 1, 2").fetchall()
print(json.dumps(rows))
"""

SPARK = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.jars", sys.argv[1])
settings = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",  # of a small table; 50 by default
    "spark.ui.enabled": "false",
}
spark = builder.config(map=settings).getOrCreate()
for version in sys.argv[3:]:
    table = spark.read.format("delta").option("versionAsOf", version).load(sys.argv[2])
    rows = table.selectExpr(
        "partition", "offset", "string(key)", "string(value)", "deleted", "headers[0].key"
    ).collect()
    print(json.dumps(sorted(map(list, rows))))
"""

_IVY = """<ivy-module version="2.0">
  <info organisation="headrace" module="delta_spark"/>
  <configurations><conf name="delta_spark"/></configurations>
  <dependencies>
    <dependency org="io.delta" name="delta-spark_4.2_{SCALA_VERSION}" rev="{DELTA_SPARK_VERSION}"
                conf="delta_spark->master" transitive="false"/>
    <dependency org="io.delta" name="delta-storage" rev="{DELTA_SPARK_VERSION}" conf="delta_spark->master"
                transitive="false"/>
  </dependencies>
</ivy-module>
"""

Rows = list[list[object]]


def stages(location: Location) -> Iterator[Rows]:
    """Makes a collection, and changes it; after each step what it holds."""
    writer = CollectionWriter(Table.create(location, partitions=2, name="orders"), "source")
    expected: Rows = []
    for number in range(20):
        key, deleted = b"k%d" % (number % 4), number % 8 == 7
        headers = (("message-id", b"m%d" % number),)
        writer.append([NewDocument(number, number % 2, key, b"%d" % number, headers, deleted)], number + 1)
        expected.append([number % 2, number // 2, key.decode(), str(number), deleted, "message-id"])
    yield _in_order(expected)
    merge(Table(location), Retention())
    yield _in_order(expected)
    reduce_to_last(Table(location), [10, 10], deletions_until=0)
    yield _in_order(list({row[2]: row for row in expected}.values()))


def _in_order(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (row[0], row[1]))


def test_duckdb(tmp_path: Path) -> None:
    location = Location.of(str(tmp_path / "orders"))
    for expected in stages(location):
        assert json.loads(duckdb_output(DUCKDB, location.uri)) == expected


def test_spark(project_layout: Layout, tmp_path: Path) -> None:
    """It reads former versions as well, whose files are kept for a day."""
    location = Location.of(str(tmp_path / "orders"))
    versions = {Table(location).snapshot().version: expected for expected in stages(location)}
    output = spark_output(SPARK, project_layout, "delta_spark", _IVY, location.uri, *map(str, versions))
    assert [json.loads(line) for line in output.splitlines()] == list(versions.values())
