from pydantic import ConfigDict, Field

from backend.connectors.jdbc.connection import JdbcConnection
from backend.connectors.jdbc.session import JdbcSession
from backend.connectors.parts.database import Session
from backend.connectors.parts.rows.options import SqlOutputOptions
from backend.connectors.parts.rows.writer import RowWriter
from backend.domain.model import ADVANCED


class JdbcOutputOptions(SqlOutputOptions):
    """Rows that are written to one table."""

    model_config = ConfigDict(title="SQL output options")

    connections: int = Field(
        1,
        ge=1,
        le=8,
        description="Connections to the database at the same time, per task. Each is a Java process of up to 256 MB.",
        json_schema_extra=ADVANCED,
    )


class JdbcDeliverBatch(RowWriter[JdbcConnection]):
    """Writes each batch in one transaction, by a Java process of up to 256 MB for each connection.

    At least once: a batch whose commit was not confirmed is written again, which does no harm with upsert and delete,
    and with insert makes a row twice where no key forbids it. An upsert updates the row and, where there is none,
    inserts it; another writer that inserts the same row meanwhile is noticed by the unique index on the key. The case
    of a column's name matters only where two columns differ in nothing else. Databases without transactions are
    refused."""

    options_model = JdbcOutputOptions
    folds_case = True

    async def opened_session(self) -> Session:
        return await JdbcSession.open(self.connection, "write")

    def target(self) -> str:
        return f"table {self.options.table} of {self.connection.shown}"
