from backend.connectors.parts.database import Session, SqlConnection, opened_in_time


async def opened_session(connection: SqlConnection) -> Session:
    """Raises ConnectionFailedError."""
    if connection.dialect == "postgresql":
        from backend.connectors.parts.postgresql import PostgresqlSession

        return await opened_in_time(connection, PostgresqlSession.open(connection))
    from backend.connectors.sql.mysql import MysqlSession

    return await opened_in_time(connection, MysqlSession.open(connection))
