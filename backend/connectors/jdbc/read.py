from backend.connectors.jdbc.connection import JdbcConnection
from backend.connectors.jdbc.session import JdbcSession
from backend.connectors.parts.database import ReadingSession
from backend.connectors.parts.rows.reader import RowReader


class JdbcReadBatch(RowReader[JdbcConnection]):
    """Reads rows in the order of their positions, in one statement that is read as it is consumed, by a Java process of
    up to 256 MB for each input that is read.

    At least once: a row that is read again has the same message ID if it has a key or a position. Rows of transactions
    that commit after later rows were read are missed, unless a timestamp's delay covers them. Dates and times are in
    UTC where a column has no zone of its own."""

    async def opened_session(self) -> ReadingSession:
        return await JdbcSession.open(self.connection)
