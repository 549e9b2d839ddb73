"""Joins a stream with a table, or two tables: stateful processing on the JVM, in TableJoin.java and TablesJoin.java.

Python would do the same with four calls between two processes for each key. Spark brings the compiler that it uses for
its own generated code, so the classes need no build: they are compiled when the first join starts, and handed to the
executors as a jar.
"""

import tempfile
import threading
import zipfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

SOURCES = [Path(__file__).with_name(f"{name}.java") for name in ("TableJoin", "TablesJoin")]
_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
RECORD = StructType(
    [
        StructField("join_key", StringType()),
        StructField("is_table", BooleanType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("timestamp", TimestampType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("headers", _HEADERS),
    ]
)
"""A record of either side, as TableJoin.java expects it."""
OF_TABLE = "table_"
"""What the names of the table's fields begin with in the result."""


IS_THERE = "is_there"
"""In the result of a join of two tables: whether there is a row, or there was one that is deleted."""


def with_latest(records: DataFrame, *, keeps_unmatched: bool) -> DataFrame:
    """The stream's records with the table's latest at their time, whose fields have names that begin with OF_TABLE.
    ``records`` are of both sides, with the fields of RECORD."""
    return _joined(records, "TableJoin", [], keeps_unmatched)


def with_each_other(records: DataFrame, *, keeps_first: bool, keeps_second: bool) -> DataFrame:
    """What becomes of the rows of two tables, with the fields of both records and IS_THERE; the second table's have
    names that begin with OF_TABLE. ``records`` are of both, with the fields of RECORD."""
    return _joined(records, "TablesJoin", [StructField(IS_THERE, BooleanType())], keeps_first, keeps_second)


def _joined(records: DataFrame, name: str, more: list[StructField], *arguments: bool) -> DataFrame:
    session = records.sparkSession
    jvm: Any = session.sparkContext._jvm
    of_table = [StructField(OF_TABLE + one.name, one.dataType) for one in RECORD.fields]
    result = _java_type(session, StructType([*RECORD.fields, *of_table, *more]))
    processor = _made(session, name, _java_type(session, RECORD), *arguments)
    key = _made(session, "TableJoin$JoinKey")
    streaming = jvm.org.apache.spark.sql.streaming
    grouped = records.select(*RECORD.names)._jdf.groupByKey(key, jvm.org.apache.spark.sql.Encoders.STRING())
    joined = grouped.transformWithState(
        processor,
        getattr(streaming.TimeMode, "None")(),
        streaming.OutputMode.Append(),
        jvm.org.apache.spark.sql.Encoders.row(result),
    )
    return DataFrame(joined, session)


def _made(session: SparkSession, name: str, *arguments: Any) -> Any:
    """An instance of a class of SOURCES."""
    context = session.sparkContext
    jvm: Any = context._jvm
    array = context._gateway.new_array(jvm.java.lang.Object, len(arguments))  # type: ignore[union-attr]
    for number, argument in enumerate(arguments):
        array[number] = argument
    loader = session._jsparkSession.sharedState().jarClassLoader()
    _install(session)
    return jvm.java.lang.Class.forName(name, True, loader).getConstructors()[0].newInstance(array)


def _java_type(session: SparkSession, schema: StructType) -> Any:
    return session._jsparkSession.parseDataType(schema.json())


_installed: set[str] = set()
"""The applications that know the classes."""
_installing = threading.Lock()


def _install(session: SparkSession) -> None:
    context = session.sparkContext
    with _installing:
        if context.applicationId in _installed:
            return
        jvm: Any = context._jvm
        parent = session._jsparkSession.sharedState().jarClassLoader()
        jar = Path(tempfile.mkdtemp(prefix="headrace-")) / "joins.jar"
        with zipfile.ZipFile(jar, "w") as archive:
            for source in SOURCES:
                compiler = jvm.org.codehaus.janino.SimpleCompiler()
                compiler.setParentClassLoader(parent)
                compiler.cook(source.read_text())
                parent = compiler.getClassLoader()  # a later class may use an earlier one
                for name, code in dict(compiler.getBytecodes()).items():
                    archive.writestr(f"{name}.class", bytes(code))
        session.sql(f"ADD JAR '{jar}'")
        _installed.add(context.applicationId)
