"""The statements of Connect SQL, as immutable values.

Names are as they were written: they are looked up without regard to case, unless two differ in case only.
"""

from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import TypeAlias

from backend.domain.connect_sql.expressions import Expression, Type

Value: TypeAlias = str | int | Decimal | bool | None


class Direction(StrEnum):
    """Whether a connector brings data in or takes them out."""

    SOURCE = "SOURCE"
    SINK = "SINK"


class Kind(StrEnum):
    """A stream is a sequence of events; a table has the latest row of each key."""

    STREAM = "STREAM"
    TABLE = "TABLE"


class Change(StrEnum):
    """What may be done to a connector's tasks."""

    PAUSE = "PAUSE"
    RESUME = "RESUME"
    RESTART = "RESTART"


class Listing(StrEnum):
    """What SHOW lists, beside connectors and their plugins."""

    STREAMS = "STREAMS"
    TABLES = "TABLES"
    TOPICS = "TOPICS"
    QUERIES = "QUERIES"
    SECRETS = "SECRETS"
    VARIABLES = "VARIABLES"


@dataclass(frozen=True)
class Property:
    """One ``key = value`` of a WITH clause, and where it stands."""

    key: str
    value: Value = field(repr=False)
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Properties:
    """A WITH clause. ``elided`` is true if it ends in three dots, as in documents; it cannot be executed then."""

    items: tuple[Property, ...] = ()
    elided: bool = False

    def as_dict(self) -> dict[str, Value]:
        """The values by their keys, as written."""
        return {item.key: item.value for item in self.items}


@dataclass(frozen=True, kw_only=True)
class Statement:
    """``line`` is where the statement begins, counted from 1."""

    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class CreateConnector(Statement):
    """Makes and starts a connector; ``connector.class`` decides where."""

    direction: Direction
    name: str
    properties: Properties
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropConnector(Statement):
    """Stops and deletes a connector. ``terminate`` also ends the queries on its topics."""

    name: str
    if_exists: bool = False
    terminate: bool = False


@dataclass(frozen=True)
class ChangeConnector(Statement):
    """PAUSE, RESUME or RESTART."""

    change: Change
    name: str


@dataclass(frozen=True)
class Describe(Statement):
    """What is known of a connector, stream or table; with ``connector``, only of a connector."""

    name: str
    connector: bool = False
    extended: bool = False


@dataclass(frozen=True)
class ShowConnectors(Statement):
    """Lists connectors, of one direction if given."""

    direction: Direction | None = None


@dataclass(frozen=True)
class ShowPlugins(Statement):
    """Lists the classes of which connectors can be made."""


@dataclass(frozen=True)
class Show(Statement):
    """Lists other objects."""

    listing: Listing
    extended: bool = False


@dataclass(frozen=True)
class CreateSecret(Statement):
    """Stores a secret for ``${secret:name}``."""

    name: str
    value: str = field(repr=False)
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropSecret(Statement):
    """Deletes a secret."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class Define(Statement):
    """Sets a variable for the statements that follow."""

    name: str
    value: str


@dataclass(frozen=True)
class Undefine(Statement):
    """Removes a variable."""

    name: str


@dataclass(frozen=True)
class ColumnDefinition:
    """``key`` is "KEY" for the key of a stream's records, "PRIMARY KEY" for a table's."""

    name: str
    type: Type
    key: str | None = None


@dataclass(frozen=True)
class Declare(Statement):
    """Declares a stream or table on a topic; the topic is not changed."""

    kind: Kind
    name: str
    columns: tuple[ColumnDefinition, ...]
    properties: Properties
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class Duration:
    """``unit`` is MILLISECONDS, SECONDS, MINUTES, HOURS or DAYS."""

    amount: int
    unit: str

    @property
    def milliseconds(self) -> int:
        return self.amount * _MILLISECONDS[self.unit]


_MILLISECONDS = {"MILLISECONDS": 1, "SECONDS": 1_000, "MINUTES": 60_000, "HOURS": 3_600_000, "DAYS": 86_400_000}
UNITS = tuple(_MILLISECONDS)


@dataclass(frozen=True)
class Window:
    """``kind`` is TUMBLING, HOPPING (which advances by ``advance``) or SESSION (whose size is the gap that ends it)."""

    kind: str
    size: Duration
    advance: Duration | None = None
    retention: Duration | None = None
    grace: Duration | None = None


@dataclass(frozen=True)
class Relation:
    """A stream or table that a query reads, under an alias if given."""

    name: str
    alias: str | None = None


@dataclass(frozen=True)
class Within:
    """How far apart two joined rows may be in time."""

    before: Duration
    after: Duration
    grace: Duration | None = None


@dataclass(frozen=True)
class Join:
    """``kind`` is INNER, LEFT, RIGHT or FULL."""

    kind: str
    relation: Relation
    on: Expression
    within: Within | None = None


@dataclass(frozen=True)
class SelectItem:
    """An expression under a name; without an expression all columns, of ``source`` if given."""

    expression: Expression | None = None
    name: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class Query:
    """``emit`` is CHANGES, FINAL or None."""

    items: tuple[SelectItem, ...]
    source: Relation
    joins: tuple[Join, ...] = ()
    window: Window | None = None
    where: Expression | None = None
    group_by: tuple[Expression, ...] = ()
    partition_by: tuple[Expression, ...] = ()
    having: Expression | None = None
    emit: str | None = None
    limit: int | None = None


@dataclass(frozen=True)
class Select(Statement):
    """A push query (EMIT CHANGES) or a pull query."""

    query: Query


@dataclass(frozen=True)
class CreateAs(Statement):
    """A persistent query, whose result is a new stream or table."""

    kind: Kind
    name: str
    query: Query
    properties: Properties = Properties()
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropSource(Statement):
    """Removes the declaration of a stream or table, with ``delete_topic`` its topic too."""

    kind: Kind
    name: str
    if_exists: bool = False
    delete_topic: bool = False


@dataclass(frozen=True)
class InsertValues(Statement):
    """Writes one row."""

    name: str
    columns: tuple[str, ...]
    values: tuple[Expression, ...]


@dataclass(frozen=True)
class InsertSelect(Statement):
    """A persistent query, whose result goes to an existing stream."""

    name: str
    query: Query


@dataclass(frozen=True)
class Explain(Statement):
    """How a query, a running one by its id or one that is written out, is executed."""

    subject: "str | Query | CreateAs"


@dataclass(frozen=True)
class Terminate(Statement):
    """Ends a persistent query, or all of them if ``query_id`` is None."""

    query_id: str | None


@dataclass(frozen=True)
class Print(Statement):
    """Shows a topic's records."""

    topic: str
    from_beginning: bool = False
    limit: int | None = None
