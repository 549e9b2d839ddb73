from backend.connectors.jdbc.connection import JdbcConnection
from backend.connectors.jdbc.read import JdbcReadBatch
from backend.connectors.jdbc.session import JdbcSession
from backend.connectors.jdbc.write import JdbcDeliverBatch
from backend.connectors.parts.database import ConnectionFailedError
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import CheckFailedError, Connector, connectors


@connectors.register
class Jdbc(Connector):
    """Writes to tables and reads rows of any database that has a JDBC driver: SQL Server, Oracle, Db2 and others."""

    type = "jdbc"
    title = "JDBC database"
    connection_model = JdbcConnection
    capabilities = (JdbcDeliverBatch, JdbcReadBatch)
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
