from backend.connectors.parts.database import ReadingSession, SqlConnection
from backend.connectors.parts.rows.options import PartedSqlInputOptions
from backend.connectors.parts.rows.reader import RowReader
from backend.connectors.sql.session import opened_session


class SqlReadBatch(RowReader[SqlConnection]):
    """Reads rows in the order of their positions, by one statement for each table, which is read as it is consumed.

    At least once: a row that is read again makes a message with the same ID if it has a key or a position. Templates
    have a row's table as `{{$message.source}}`. On PostgreSQL, transactions that commit late lose no row; on MySQL, a
    timestamp's delay has to cover them. A large table is read in mode bulk by several readers at the same time: on
    PostgreSQL one with any key, on MySQL one whose key is a whole number."""

    options_model = PartedSqlInputOptions

    async def opened_session(self) -> ReadingSession:
        return await opened_session(self.connection)

    @property
    def knows_transactions(self) -> bool:
        return self.connection.dialect == "postgresql"
