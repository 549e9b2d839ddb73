import time
from collections.abc import Collection, Sequence
from typing import Any

from backend.connectors.parts.database import (
    Change,
    Session,
    Sessions,
    SqlConnection,
    Table,
    configuration_error,
    message_error,
)
from backend.connectors.sql.options import SqlOutputOptions
from backend.connectors.sql.session import opened_session
from backend.domain import json
from backend.domain.capabilities import DeliverBatch, DeliveryError, Receipt, Sent
from backend.domain.message import Message
from backend.domain.paths import MISSING, get, parse_path
from backend.domain.reasons import Reason

_TABLE_SECONDS = 60.0
"""How long a table's description is used; a column that is added is written to after this time."""


class SqlDeliverBatch(DeliverBatch[SqlConnection, SqlOutputOptions]):
    """Writes each batch in one transaction.

    At least once: a batch whose commit was not confirmed is written again, which does no harm with upsert and delete,
    and with insert makes a row twice where no key forbids it."""

    options_model = SqlOutputOptions

    def __init__(self, connection: SqlConnection, options: SqlOutputOptions) -> None:
        super().__init__(connection, options)
        self._sessions = Sessions(lambda: opened_session(connection), options.connections)
        self._fields = {column: parse_path(path) for column, path in options.columns.items()}
        self._delete_when = parse_path(options.delete_when) if options.delete_when else None
        self._described: tuple[float, Table, tuple[str, ...]] | None = None

    @property
    def atomic(self) -> bool:
        return True

    async def open(self) -> None:
        async with self._sessions.use() as session:
            await self._table(session)

    async def close(self) -> None:
        self._sessions.close()

    def target(self) -> str:
        return f"table {self.options.table} of {self.connection.shown}"

    def sent(self, message: Message) -> Sent:
        """The row as far as it is known without the table, which may lack columns for some of its fields."""
        document = _document(message)
        row = self._row(document, document)
        key = self.options.key if self.options.write != "insert" else []
        _check_key(row, key)
        deletes = self._deletes(document)
        place = f"row with {', '.join(f'{name} {json.text(row[name])}' for name in key)}" if key else ""
        return Sent(b"" if deletes and key else json.dumps(row), place, deletes)

    async def deliver(self, messages: Sequence[Message]) -> Sequence[Receipt | DeliveryError]:
        async with self._sessions.use() as session:
            table, key = await self._table(session)
            changes = [self._change(message, table, key) for message in messages]
            try:
                await session.write(table, [change for change in changes if isinstance(change, Change)], key)
            except DeliveryError as error:
                if error.reason == Reason.CONFIGURATION:
                    self._described = None  # the table may have changed
                raise
        return [
            Receipt("deleted" if change.delete else "written") if isinstance(change, Change) else change
            for change in changes
        ]

    async def _table(self, session: Session) -> tuple[Table, tuple[str, ...]]:
        """The table and the columns of its key. Raises DeliveryError when the options do not suit it."""
        if self._described is None or time.monotonic() - self._described[0] > _TABLE_SECONDS:
            table = await session.table(self.options.table)
            self._described = time.monotonic(), table, self._key(table)
        return self._described[1], self._described[2]

    def _key(self, table: Table) -> tuple[str, ...]:
        options, name = self.options, self.options.table
        for column in (*options.key, *options.columns):
            if column not in table.columns:
                known = ", ".join(table.columns)
                raise configuration_error(f"Table {name} has no column {column} that can be written; it has {known}.")
        if options.columns:
            for column, described in table.columns.items():
                if not described.optional and column not in options.columns and options.write != "delete":
                    raise configuration_error(
                        f"Column {column} of table {name} needs a value ({described.type}): add it to the columns."
                    )
        if options.write == "insert":
            return ()
        key = tuple(options.key) or table.primary_key
        if not key:
            raise configuration_error(f"Table {name} has no primary key: name the columns of the key.")
        if options.write == "upsert" and not any(set(unique) == set(key) for unique in table.keys):
            raise configuration_error(f"Table {name} has no unique index on {', '.join(key)}, which upsert needs.")
        return key

    def _change(self, message: Message, table: Table, key: tuple[str, ...]) -> Change | DeliveryError:
        try:
            document = _document(message)
            row = self._row(document, table.columns)
            _check_key(row, key)
        except DeliveryError as error:
            return error
        if self._deletes(document):
            return Change(True, {name: row[name] for name in key})
        if not row:
            return message_error(f"The message has no field for any column of table {self.options.table}.")
        return Change(False, row)

    def _row(self, document: dict[str, Any], columns: Collection[str]) -> dict[str, Any]:
        """Raises DeliveryError for a field without a column, if that is refused."""
        if self._fields:
            values = ((column, get(document, path)) for column, path in self._fields.items())
            return {column: value for column, value in values if value is not MISSING}
        row = {name: document[name] for name in columns if name in document}
        if self.options.unknown_fields == "refuse":
            marker = self._delete_when[:1] if self._delete_when else ()
            if unknown := sorted(document.keys() - row.keys() - set(marker)):
                raise message_error(f"Table {self.options.table} has no column {unknown[0]} that can be written.")
        return row

    def _deletes(self, document: dict[str, Any]) -> bool:
        if self._delete_when is not None:
            return get(document, self._delete_when) is True
        return self.options.write == "delete"


def _document(message: Message) -> dict[str, Any]:
    """Raises DeliveryError when the message is no JSON object."""
    try:
        document = json.loads(message.body)
    except json.InvalidJsonError as error:
        text = f"Rows are made of JSON objects; this message is not JSON: {error}"
        raise message_error(text, Reason.NOT_JSON) from None
    if not isinstance(document, dict):
        raise message_error("Rows are made of JSON objects; this message is another value.", Reason.NOT_JSON)
    return document


def _check_key(row: dict[str, Any], key: Sequence[str]) -> None:
    """Raises DeliveryError when a column of the key has no value."""
    for name in key:
        if row.get(name) is None:
            raise message_error(f"The message has no value for column {name} of the key.")
