"""Changes of tables of PostgreSQL."""

from typing import Any, ClassVar

from tests import logical_replication
from tests.e2e.matrix.ends import FIELDS
from tests.e2e.matrix.sql import PostgresqlInlet


class PostgresCdcInlet(PostgresqlInlet):
    """The rows are in the snapshot with which reading begins."""

    type, title = "postgres_cdc", "PostgreSQL changes (CDC)"
    fixtures, servers = (), (logical_replication.logical_server,)
    connection = logical_replication.CONNECTION
    url = logical_replication.url()
    transforms: ClassVar[list[dict[str, Any]]] = [
        *({"type": "rename", "path": f"after.{name}", "to": name} for name in FIELDS),
        {"type": "keep", "paths": list(FIELDS)},
    ]

    def __init__(self) -> None:
        super().__init__()
        self.options = {"tables": [f"public.{self.table}"]}
