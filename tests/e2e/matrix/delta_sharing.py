"""Shared Delta tables."""

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa
from deltalake import write_deltalake

from backend.domain import json as exact
from tests.delta_sharing import profile, sharing_server, table_folder
from tests.e2e.matrix.ends import Inlet, Record, canonical

_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("flag", pa.bool_()),
        ("big", pa.int64()),
        ("amount", pa.decimal128(38, 9)),
        ("at", pa.timestamp("us", "UTC")),
        ("document", pa.string()),
    ]
)


class DeltaSharingInlet(Inlet):
    type, servers = "delta_sharing", (sharing_server,)
    has_texts_of_documents = True

    def __init__(self) -> None:
        super().__init__()
        self._table = f"t_{self.name.replace('-', '')}"
        self.connection = profile()
        self.options = {"share": "tests", "schema_name": "default", "table": self._table, "key": ["id"]}

    def write(self, records: Sequence[Record]) -> None:
        write_deltalake(table_folder(self._table), pa.Table.from_pylist(list(map(_row, records)), _SCHEMA))


def _row(record: Record) -> Record:
    row = canonical(record)
    if "at" in row:
        row["at"] = datetime.fromisoformat(row["at"])
    if "document" in row:
        row["document"] = exact.dumps(record["document"]).decode()
    return row
