import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from backend.connectors.parts.database import configuration_error, opened_in_time
from backend.connectors.parts.postgresql import PostgresqlSession, primary
from backend.connectors.parts.replication import slot_failure
from backend.connectors.postgres_cdc.connection import CdcOptions, PostgresConnection
from backend.domain.capabilities import DeliveryError, RegistrationState
from backend.domain.reasons import Reason

SNAPSHOT_SUFFIX = "_snapshot"
"""Of the name of a physical slot that holds nothing: it is there until the snapshot has been read."""

_MAKE_SECONDS = 20.0
_MEGABYTE = 1024 * 1024
_LIMIT_SHARE = 0.7
"""Of max_slot_wal_keep_size, beyond which a slot is in danger."""
_NO_IDENTITY = """
SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND n.nspname NOT IN ('pg_catalog', 'information_schema')
    AND (c.relreplident = 'n' OR c.relreplident = 'd'
        AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary))
    AND (%s::text[] IS NULL OR c.oid = ANY(%s::text[]::regclass[]))
ORDER BY 1 LIMIT 1
"""
_SLOT = """
SELECT wal_status, confirmed_flush_lsn::text, plugin, database = current_database() FROM pg_replication_slots
WHERE slot_name = %s
"""
_RETAINED = """
SELECT wal_status,
    pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END,
        restart_lsn)::bigint,
    pg_size_bytes(nullif(current_setting('max_slot_wal_keep_size'), '-1')), active
FROM pg_replication_slots WHERE slot_name = %s
"""


class Registrar:
    """Makes and removes publication and slot. Raises DeliveryError."""

    def __init__(self, connection: PostgresConnection, options: CdcOptions, session: PostgresqlSession) -> None:
        self._connection = connection
        self._options = options
        self._session = session

    @classmethod
    async def open(cls, connection: PostgresConnection, options: CdcOptions) -> "Registrar":
        return cls(connection, options, await opened_in_time(connection, PostgresqlSession.open(connection)))

    def close(self) -> None:
        self._session.abort()

    async def register(self, name: str, made: dict[str, Any]) -> dict[str, Any]:
        options = self._options
        slot, publication = options.slot or name, options.publication or name
        with self._explained(slot):
            await self._check_level()
            await self._publish(publication)
            present = await self._present(slot)
            anew = not present or not made or made.get("slot") != slot
            if not present:
                await self._make(slot)
            if anew and options.begin == "snapshot":
                await self._mark(f"{name}{SNAPSHOT_SUFFIX}")
            begin = (await self._query(_SLOT, [slot]))[0][1] if anew else made["begin"]
        return {"slot": slot, "publication": publication, "begin": begin, "snapshot": f"{name}{SNAPSHOT_SUFFIX}"}

    async def unregister(self, name: str) -> None:
        with self._explained(name):
            for slot in (name, f"{name}{SNAPSHOT_SUFFIX}"):
                await self._query(
                    "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", [slot]
                )
            await self._query(f'DROP PUBLICATION IF EXISTS "{name}"')

    async def state(self, slot: str) -> RegistrationState:
        with self._explained(slot):
            rows = await self._query(_RETAINED, [slot])
        if not rows:
            return RegistrationState(
                f"The replication slot {slot} was removed: publish the pipeline again to make a new one."
            )
        status, retained, limit, active = rows[0]
        measures = {"retained_bytes": float(retained or 0)}
        if status == "lost":
            return RegistrationState(
                f"The replication slot {slot} is lost, since it kept more of the log than max_slot_wal_keep_size "
                "allows: publish the pipeline again to make a new one.",
                measures,
            )
        return RegistrationState(self._warning(slot, retained or 0, limit, active), measures)

    def _warning(self, slot: str, retained: int, limit: int | None, active: bool) -> str:
        megabytes = f"{retained / _MEGABYTE:,.0f} MB"
        reader = "" if active else " Nothing reads it at present."
        if limit is not None and retained > limit * _LIMIT_SHARE:
            return (
                f"The database keeps {megabytes} of its log for the slot {slot}, which is lost at "
                f"{limit / _MEGABYTE:,.0f} MB (max_slot_wal_keep_size).{reader}"
            )
        if retained > self._options.retained_megabytes * _MEGABYTE:
            return f"The database keeps {megabytes} of its log for the slot {slot}, which takes its disk space.{reader}"
        return ""

    async def _check_level(self) -> None:
        ((level,),) = await self._query("SHOW wal_level")
        if level != "logical":
            raise configuration_error(
                f"The database has wal_level = {level}: set it to logical in postgresql.conf, and restart the server."
            )

    async def _publish(self, publication: str) -> None:
        exists = await self._query("SELECT puballtables FROM pg_publication WHERE pubname = %s", [publication])
        if self._options.publication:
            if not exists:
                raise _option_error("publication", f"There is no publication {publication}: make it, or name none.")
            return
        tables = [await self._table(name) for name in self._options.tables]
        await self._check_identities([table.replace("%%", "%") for table in tables] or None)
        name = self._session.quoted(publication)
        everything = await self._query(
            "SELECT 1 FROM pg_publication WHERE pubname = %s AND puballtables", [publication]
        )
        if exists and (everything or not tables):
            if everything and not tables:
                return
            await self._query(f"DROP PUBLICATION {name}")  # one of all tables cannot become one of some, or the reverse
            exists = []
        listed = ", ".join(tables)
        if exists:
            await self._query(f"ALTER PUBLICATION {name} SET TABLE {listed}")
        else:
            what = f"TABLE {listed}" if tables else "ALL TABLES"
            await self._query(f"CREATE PUBLICATION {name} FOR {what} WITH (publish_via_partition_root = true)")

    async def _table(self, name: str) -> str:
        """The quoted name of a table that exists. Raises DeliveryError."""
        try:
            return (await self._session.table(name)).sql
        except DeliveryError as error:
            raise _option_error("tables", str(error)) from None

    async def _check_identities(self, tables: list[str] | None) -> None:
        if without := await self._query(_NO_IDENTITY, [tables, tables]):
            table = without[0][0]
            raise _option_error(
                "tables",
                f"The table {table} has no primary key, so that PostgreSQL would refuse to update or delete its rows "
                f"once it is published: give it one, or run ALTER TABLE {table} REPLICA IDENTITY FULL.",
            )

    async def _present(self, slot: str) -> bool:
        """Whether the slot is there and works. One of Headrace's own that is lost is removed."""
        rows = await self._query(_SLOT, [slot])
        own = self._options.slot is None
        if not rows:
            if not own:
                raise _option_error("slot", f"There is no replication slot {slot}: make it, or name none.")
            return False
        status, _, plugin, here = rows[0]
        if plugin != "pgoutput" or not here:
            raise _option_error("slot", f"The replication slot {slot} is not one of this database with pgoutput.")
        if status != "lost":
            return True
        if not own:
            raise _option_error("slot", f"The replication slot {slot} is lost: remove it, and make it again.")
        await self._query("SELECT pg_drop_replication_slot(%s)", [slot])
        return False

    async def _make(self, slot: str) -> None:
        try:
            async with asyncio.timeout(_MAKE_SECONDS):
                await self._query("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
        except TimeoutError:
            text = "PostgreSQL makes a replication slot once all transactions that are running now have ended."
            raise DeliveryError(Reason.TIMEOUT, text, retryable=True) from None

    async def _mark(self, marker: str) -> None:
        if not await self._query(_SLOT, [marker]):
            await self._query("SELECT pg_create_physical_replication_slot(%s)", [marker])

    async def _query(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        return await self._session.query(statement, parameters)

    @contextmanager
    def _explained(self, slot: str) -> Iterator[None]:
        """PostgreSQL's errors in the terms of the options."""
        try:
            yield
        except psycopg.Error as error:
            raise self._explanation(error, slot) from None

    def _explanation(self, error: psycopg.Error, slot: str) -> DeliveryError:
        text, user = primary(error), self._connection.user
        match error.sqlstate:
            case "42501" if "replication" in text:
                return configuration_error(
                    f"The user {user} may not use replication slots: run ALTER ROLE {user} REPLICATION."
                )
            case "42501":
                return _option_error(
                    "publication",
                    f"The user {user} may not make the publication: {text}. Have it made by another user, and name it "
                    "here.",
                )
            case "53400":
                return configuration_error(
                    f"The database has no room for another replication slot: raise max_replication_slots ({text})."
                )
        return slot_failure(error, slot)


def _option_error(option: str, text: str) -> DeliveryError:
    return DeliveryError(Reason.CONFIGURATION, text, retryable=True, option=option)
