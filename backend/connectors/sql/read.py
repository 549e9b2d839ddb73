from backend.connectors.parts.database import ReadingSession, SqlConnection
from backend.connectors.parts.rows.reader import RowReader
from backend.connectors.sql.session import opened_session


class SqlReadBatch(RowReader[SqlConnection]):
    """Reads rows in the order of their positions, in one statement that is read as it is consumed."""

    async def opened_session(self) -> ReadingSession:
        return await opened_session(self.connection)

    @property
    def knows_transactions(self) -> bool:
        return self.connection.dialect == "postgresql"
