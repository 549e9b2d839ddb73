from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from backend.connectors.parts.database import ConnectionFailedError, opened_in_time
from backend.connectors.postgres_cdc.connection import CdcOptions, PostgresConnection
from backend.domain.capabilities import Batch, DeliveryError, ReadStream, Register, RegistrationState
from backend.domain.connector import CheckFailedError, Connector, connectors

if TYPE_CHECKING:
    from backend.connectors.postgres_cdc.register import Registrar
    from backend.connectors.postgres_cdc.stream import ChangeReader


class CdcReadStream(ReadStream[PostgresConnection, CdcOptions]):
    """Reads the changes of rows, in the order in which their transactions were committed: inserts, updates, deletes and
    truncations, each as {"op", "schema", "table", "before", "after", "lsn", "ts", "xid"}. The ordering key is the
    primary key.

    At least once. PostgreSQL keeps what Headrace has not stored yet, also across restarts; after a crash, the
    transactions that were not confirmed are sent again, with the same message IDs. The slot advances with the log
    also while only other tables change.

    A snapshot and the changes after it have each change once. Rows are read in the order of their primary key, and a
    snapshot that is interrupted continues after the last row that was stored; a table without a primary key is read
    again from its beginning, and rows that are unchanged since have the same message IDs. Changes that were made
    meanwhile are sent as changes, too, so that no deletion is missed. Tables that a later version adds are read from
    then on, without their earlier rows.

    "before" is what the replica identity gives: the key, if it was changed or the row was deleted, or the whole row
    with REPLICA IDENTITY FULL. An update of the primary key is a delete and an insert, so that the order of both keys
    holds. Large values that an update leaves as they are (TOAST) are not sent by PostgreSQL: "unchanged" names their
    columns, which "after" lacks. A truncation has neither key nor rows."""

    options_model = CdcOptions
    keeps_position = True  # the server keeps that of its log, and none of a snapshot
    _reader: "ChangeReader | None" = None

    async def open(self) -> None:
        from backend.connectors.postgres_cdc.stream import ChangeReader

        self._reader = await ChangeReader.open(self.connection, self.registered, self.position)

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    @classmethod
    def goes_on_from(cls, breakpoint: Any) -> bool:
        """Only that of a snapshot: it has a place beside the batch's number and the position in the log, which the slot
        keeps."""
        return len(breakpoint or ()) > 2

    def stream(self) -> AsyncIterator[Batch]:
        assert self._reader is not None
        return self._reader.stream()

    async def acknowledge(self, position: Any) -> None:
        assert self._reader is not None
        self._reader.acknowledge(position)


class CdcRegister(Register[PostgresConnection, CdcOptions]):
    """Makes the publication and the replication slot, unless the options name others, and removes them.

    Tables that PostgreSQL would not let be changed any more once they are published, since they have neither a primary
    key nor a replica identity, are refused. A slot that was lost is made again when the pipeline is published again;
    then the snapshot is read again, too, if the options ask for one."""

    options_model = CdcOptions
    _registrar: "Registrar | None" = None

    async def open(self) -> None:
        from backend.connectors.postgres_cdc.register import Registrar

        self._registrar = await Registrar.open(self.connection, self.options)

    async def close(self) -> None:
        if self._registrar is not None:
            self._registrar.close()

    async def register(self, name: str, made: dict[str, Any]) -> dict[str, Any]:
        assert self._registrar is not None
        return await self._registrar.register(name, made)

    async def unregister(self, name: str, made: dict[str, Any]) -> None:
        assert self._registrar is not None
        await self._registrar.unregister(name)

    async def state(self, name: str, made: dict[str, Any]) -> RegistrationState:
        assert self._registrar is not None
        return await self._registrar.state(made["slot"])


@connectors.register
class PostgresCdc(Connector):
    """Reads every change of the rows of a PostgreSQL database (change data capture), by logical replication."""

    type = "postgres_cdc"
    title = "PostgreSQL changes (CDC)"
    connection_model = PostgresConnection
    capabilities = (CdcReadStream, CdcRegister)
    requires = ("psycopg", "asyncssh")
    example = {"host": "db.example.com", "database": "shop", "user": "headrace", "password": "s3cret"}

    @staticmethod
    async def check(connection: PostgresConnection) -> str:
        """Logs in for replication, too, and asks for wal_level."""
        from backend.connectors.parts.postgresql import PostgresqlSession, translated
        from backend.connectors.parts.replication import Replication

        try:
            session = await opened_in_time(connection, PostgresqlSession.open(connection))
            try:
                with translated():
                    ((level,),) = await session.query("SHOW wal_level")
                greeting = await session.greeting()
            finally:
                session.abort()
            (await opened_in_time(connection, Replication.open(connection))).abort()
        except DeliveryError as error:
            field = error.field if isinstance(error, ConnectionFailedError) else None
            raise CheckFailedError(str(error), field=field) from None
        if level != "logical":
            raise CheckFailedError(
                f"{greeting} But wal_level is {level}: set it to logical in postgresql.conf, and restart the server."
            )
        return greeting
