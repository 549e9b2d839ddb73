from backend.connectors.jdbc.connection import JdbcConnection
from backend.connectors.jdbc.session import JdbcSession
from backend.connectors.parts.database import ConnectionFailedError, ReadingSession
from backend.connectors.parts.rows.reader import RowReader
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import CheckFailedError, Connector, connectors


class JdbcReadBatch(RowReader[JdbcConnection]):
    """Reads rows in the order of their positions, in one statement that is read as it is consumed, by a Java process of
    up to 256 MB for each input that is read.

    At least once: a row that is read again has the same message ID if it has a key or a position. Rows of transactions
    that commit after later rows were read are missed, unless a timestamp's delay covers them. Dates and times are in
    UTC where a column has no zone of its own."""

    async def opened_session(self) -> ReadingSession:
        return await JdbcSession.open(self.connection)


@connectors.register
class Jdbc(Connector):
    """Reads rows of any database that has a JDBC driver as messages: SQL Server, Oracle, Db2 and others."""

    type = "jdbc"
    title = "JDBC database"
    connection_model = JdbcConnection
    capabilities = (JdbcReadBatch,)
    requires = ("pyspark",)
    example = {
        "url": "jdbc:sqlserver://db.example.com:1433;databaseName=shop",
        "user": "headrace",
        "password": "s3cret",
    }

    @staticmethod
    async def check(connection: JdbcConnection) -> str:
        """Logs in, and asks for product and version."""
        try:
            session = await JdbcSession.open(connection)
        except DeliveryError as error:
            field = error.field if isinstance(error, ConnectionFailedError) else None
            raise CheckFailedError(str(error), field=field) from None
        try:
            return await session.greeting()
        finally:
            session.abort()
