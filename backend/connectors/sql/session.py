from backend.connectors.parts.database import Session, SqlConnection, opened_in_time


async def opened_session(connection: SqlConnection) -> Session:
    dialect: type[Session]
    if connection.dialect == "postgresql":
        from backend.connectors.parts.postgresql import PostgresqlSession as dialect
    else:
        from backend.connectors.sql.mysql import MysqlSession as dialect
    return await opened_in_time(connection, dialect.open(connection))
