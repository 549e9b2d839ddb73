from backend.connectors.parts.database import ConnectionFailedError, SqlConnection
from backend.connectors.sql.read import SqlReadBatch
from backend.connectors.sql.session import opened_session
from backend.connectors.sql.write import SqlDeliverBatch
from backend.domain.capabilities import DeliveryError
from backend.domain.connector import CheckFailedError, Connector, connectors


@connectors.register
class SqlDatabase(Connector):
    """Writes messages to tables of PostgreSQL, MySQL or MariaDB, and reads rows as messages."""

    type = "sql"
    title = "SQL database"
    connection_model = SqlConnection
    capabilities = (SqlDeliverBatch, SqlReadBatch)
    requires = ("psycopg", "aiomysql", "asyncssh")
    example = {
        "dialect": "postgresql",
        "host": "db.example.com",
        "database": "shop",
        "user": "headrace",
        "password": "s3cret",
    }

    @staticmethod
    async def check(connection: SqlConnection) -> str:
        """Logs in, and asks for version and rights."""
        try:
            session = await opened_session(connection)
            try:
                return await session.greeting()
            finally:
                session.abort()
        except DeliveryError as error:
            field = error.field if isinstance(error, ConnectionFailedError) else None
            raise CheckFailedError(str(error), field=field) from None
