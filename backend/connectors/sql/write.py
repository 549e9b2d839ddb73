from backend.connectors.parts.database import Session, SqlConnection
from backend.connectors.parts.rows.writer import RowWriter
from backend.connectors.sql.session import opened_session


class SqlDeliverBatch(RowWriter[SqlConnection]):
    """Writes each batch in one transaction.

    At least once: a batch whose commit was not confirmed is written again, which does no harm with upsert and delete,
    and with insert makes a row twice where no key forbids it."""

    async def opened_session(self) -> Session:
        return await opened_session(self.connection)

    def target(self) -> str:
        return f"table {self.options.table} of {self.connection.shown}"
