import time
from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

from backend.connectors.parts.database import (
    Change,
    Session,
    Sessions,
    Table,
    column_of,
    configuration_error,
    message_error,
)
from backend.connectors.parts.rows.options import SqlOutputOptions
from backend.domain import json
from backend.domain.capabilities import Connection, DeliverBatch, DeliveryError, Receipt, Sent
from backend.domain.message import Message
from backend.domain.paths import MISSING, get, parse_path
from backend.domain.reasons import Reason

_TABLE_SECONDS = 60.0
"""How long a table's description is used; a column that is added is written to after this time."""


ConnectionT = TypeVar("ConnectionT", bound=Connection)


class _Target(NamedTuple):
    """The table, the columns of its key, and those that the options list, each with the path of its field."""

    table: Table
    key: tuple[str, ...]
    listed: dict[str, tuple[str, ...]]


class RowWriter(DeliverBatch[ConnectionT, SqlOutputOptions]):
    """Writes each batch in one transaction."""

    options_model = SqlOutputOptions
    folds_case: ClassVar[bool] = False
    """Whether a name also means the only column that differs from it in nothing but case."""

    def __init__(self, connection: ConnectionT, options: SqlOutputOptions) -> None:
        super().__init__(connection, options)
        self._sessions = Sessions(self.opened_session, options.connections)
        self._fields = {column: parse_path(path) for column, path in options.columns.items()}
        self._delete_when = parse_path(options.delete_when) if options.delete_when else None
        self._described: tuple[float, _Target] | None = None

    @abstractmethod
    async def opened_session(self) -> Session:
        """A connection to the database. Raises DeliveryError."""

    @property
    def atomic(self) -> bool:
        return True

    async def open(self) -> None:
        async with self._sessions.use() as session:
            await self._target(session)

    async def close(self) -> None:
        self._sessions.close()

    def sent(self, message: Message) -> Sent:
        """The row as far as it is known without the table, which may lack columns for some of its fields."""
        document = _document(message)
        row = _listed(document, self._fields) if self._fields else document
        named = self.options.key if self.options.write != "insert" else []
        key = [self._column(name, row) or name for name in named]
        _check_key(row, key)
        deletes = self._deletes(document)
        place = f"row with {', '.join(f'{name} {json.text(row[name])}' for name in key)}" if key else ""
        return Sent(b"" if deletes and key else json.dumps(row), place, deletes)

    async def deliver(self, messages: Sequence[Message]) -> Sequence[Receipt | DeliveryError]:
        async with self._sessions.use() as session:
            target = await self._target(session)
            changes = [self._change(message, target) for message in messages]
            try:
                written = [change for change in changes if isinstance(change, Change)]
                await session.write(target.table, written, target.key)
            except DeliveryError as error:
                if error.reason == Reason.CONFIGURATION:
                    self._described = None  # the table may have changed
                raise
        return [
            Receipt("deleted" if change.delete else "written") if isinstance(change, Change) else change
            for change in changes
        ]

    async def _target(self, session: Session) -> _Target:
        """Raises DeliveryError when the options do not suit the table."""
        if self._described is None or time.monotonic() - self._described[0] > _TABLE_SECONDS:
            table = await session.table(self.options.table)
            listed = {self._known(column, table): path for column, path in self._fields.items()}
            self._described = time.monotonic(), _Target(table, self._key(table, listed), listed)
        return self._described[1]

    def _key(self, table: Table, listed: Collection[str]) -> tuple[str, ...]:
        options, name = self.options, self.options.table
        key = tuple(self._known(column, table) for column in options.key)
        if len(listed) < len(options.columns):
            raise configuration_error(f"Two of the columns {', '.join(options.columns)} are one in table {name}.")
        if listed:
            for column, described in table.columns.items():
                if not described.optional and column not in listed and options.write != "delete":
                    raise configuration_error(
                        f"Column {column} of table {name} needs a value ({described.type}): add it to the columns."
                    )
        if options.write == "insert":
            return ()
        key = key or table.primary_key
        if not key:
            raise configuration_error(f"Table {name} has no primary key: name the columns of the key.")
        if options.write == "upsert" and not any(set(unique) == set(key) for unique in table.keys):
            raise configuration_error(f"Table {name} has no unique index on {', '.join(key)}, which upsert needs.")
        return key

    def _column(self, name: str, columns: Collection[str]) -> str | None:
        """The column that a name means."""
        if self.folds_case:
            return column_of(name, columns)
        return name if name in columns else None

    def _known(self, name: str, table: Table) -> str:
        """Raises DeliveryError when no column that can be written has that name."""
        column = self._column(name, table.columns)
        if column is None:
            known = ", ".join(table.columns)
            raise configuration_error(
                f"Table {self.options.table} has no column {name} that can be written; it has {known}."
            )
        return column

    def _change(self, message: Message, target: _Target) -> Change | DeliveryError:
        try:
            document = _document(message)
            row = _listed(document, target.listed) if target.listed else self._row(document, target.table)
            _check_key(row, target.key)
        except DeliveryError as error:
            return error
        if self._deletes(document):
            return Change(True, {name: row[name] for name in target.key})
        if not row:
            return message_error(f"The message has no field for any column of table {self.options.table}.")
        return Change(False, row)

    def _row(self, document: dict[str, Any], table: Table) -> dict[str, Any]:
        """Of the fields whose names are those of columns. Raises DeliveryError for another one, if it is refused."""
        row = {name: document[name] for name in table.columns if name in document}
        unknown = sorted(document.keys() - row.keys())
        if self.folds_case:
            for name in unknown[:]:
                column = self._column(name, table.columns)
                if column is not None and column not in row:
                    row[column] = document[name]
                    unknown.remove(name)
        if self.options.unknown_fields == "refuse":
            marker = self._delete_when[:1] if self._delete_when else ()
            if refused := [name for name in unknown if name not in marker]:
                raise message_error(f"Table {self.options.table} has no column {refused[0]} that can be written.")
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


def _listed(document: dict[str, Any], listed: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """The row of columns that are listed with the paths of their fields, as far as the document has these."""
    values = ((column, get(document, path)) for column, path in listed.items())
    return {column: value for column, value in values if value is not MISSING}


def _check_key(row: dict[str, Any], key: Sequence[str]) -> None:
    """Raises DeliveryError when a column of the key has no value."""
    for name in key:
        if row.get(name) is None:
            raise message_error(f"The message has no value for column {name} of the key.")
