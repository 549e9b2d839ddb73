"""Streams and tables, as their declarations describe them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from backend.domain.connect_sql import expressions as e
from backend.domain.connect_sql import statements as s
from backend.domain.connect_sql import types as t
from backend.domain.connect_sql.errors import QueryError
from backend.domain.connect_sql.parser import parse
from backend.domain.connect_sql.printer import printed

PSEUDO_COLUMNS = {"ROWTIME": t.BIGINT, "ROWPARTITION": t.INTEGER, "ROWOFFSET": t.BIGINT}
"""What every row has beside its columns: when and where its record was written."""
WINDOW_COLUMNS = {"WINDOWSTART": t.BIGINT, "WINDOWEND": t.BIGINT}
"""What a row of a windowed table has besides."""
VALUE_FORMATS = ("JSON", "AVRO")
KEY_FORMATS = ("KAFKA", "JSON")
_KAFKA_KEYS = (t.VARCHAR, t.INTEGER, t.BIGINT)
_PROPERTIES = {
    *("kafka_topic", "value_format", "key_format", "format", "partitions", "replicas"),
    *("timestamp", "window_type", "window_size"),
}


@dataclass(frozen=True)
class Source:
    """A stream or table. ``timestamp`` is the column with a row's time; without it that is the record's own.
    ``window`` is TUMBLING, HOPPING or SESSION of a table whose keys have a window, which lasts ``window_size``
    milliseconds."""

    name: str
    kind: s.Kind
    topic: str
    columns: tuple[s.ColumnDefinition, ...]
    value_format: str = "JSON"
    key_format: str = "KAFKA"
    timestamp: str | None = None
    window: str | None = None
    window_size: int | None = None

    @property
    def keys(self) -> tuple[s.ColumnDefinition, ...]:
        """The columns that are in a record's key."""
        return tuple(column for column in self.columns if column.key)

    @property
    def values(self) -> tuple[s.ColumnDefinition, ...]:
        """The columns that are in a record's value."""
        return tuple(column for column in self.columns if not column.key)

    def all_columns(self) -> Iterator[tuple[str, e.Type]]:
        """Those of every row included, by name."""
        yield from ((column.name, column.type) for column in self.columns)
        yield from PSEUDO_COLUMNS.items()
        if self.window:
            yield from WINDOW_COLUMNS.items()

    def definition(self) -> str:
        """The statement that declares it."""
        properties = {"kafka_topic": self.topic, "value_format": self.value_format, "key_format": self.key_format}
        optional = {"timestamp": self.timestamp, "window_type": self.window, "window_size": self.window_size}
        properties |= {key: str(value) for key, value in optional.items() if value is not None}
        items = tuple(s.Property(key, value) for key, value in properties.items())
        return printed(s.Declare(self.kind, self.name, self.columns, s.Properties(items)))


def source_of(definition: str) -> Source:
    """The source that a stored definition declares."""
    [statement] = parse(definition)
    assert isinstance(statement, s.Declare)
    return declared(statement)


def declared(statement: s.Declare) -> Source:
    """Raises QueryError, with what is wrong with single properties."""
    properties = {key.lower(): value for key, value in statement.properties.as_dict().items()}
    errors = {key: ["There is no such property."] for key in properties if key not in _PROPERTIES}
    topic = str(properties.get("kafka_topic") or "")
    if not topic:
        errors["kafka_topic"] = ["This property is required: the topic with the rows."]
    value_format = _format(properties, "value_format", "JSON", VALUE_FORMATS, errors)
    key_format = _format(properties, "key_format", "KAFKA", KEY_FORMATS, errors)
    timestamp = properties.get("timestamp")
    types = {column.name: column.type for column in statement.columns}
    if timestamp is not None and types.get(str(timestamp)) not in (t.BIGINT, t.TIMESTAMP):
        errors["timestamp"] = ["This has to be a column of the type BIGINT, in milliseconds, or TIMESTAMP."]
    window = str(properties["window_type"]).upper() if properties.get("window_type") else None
    size = properties.get("window_size")
    if errors:
        raise QueryError("The properties are not valid; nothing was declared.", properties=errors)
    source = Source(
        name=statement.name,
        kind=statement.kind,
        topic=topic,
        columns=statement.columns,
        value_format=value_format,
        key_format=key_format,
        timestamp=str(timestamp) if timestamp is not None else None,
        window=window,
        window_size=int(str(size)) if size is not None else None,
    )
    check(source)
    return source


def _format(
    properties: dict[str, s.Value], key: str, default: str, known: Sequence[str], errors: dict[str, list[str]]
) -> str:
    given = str(properties.get(key) or (properties.get("format") if key == "value_format" else None) or default).upper()
    if given not in known:
        errors[key] = [f"This is one of {', '.join(known)}."]
    return given


def check(source: Source) -> None:
    """Raises QueryError when its rows could not be read."""
    names = [column.name for column in source.columns]
    if twice := {name for name in names if names.count(name) > 1}:
        raise QueryError(f"The column {sorted(twice)[0]} is declared twice.")
    if reserved := {name for name in names if name.upper() in PSEUDO_COLUMNS | WINDOW_COLUMNS}:
        raise QueryError(f"Every row has a column {sorted(reserved)[0]} of its own: name this one otherwise.")
    expected = "PRIMARY KEY" if source.kind is s.Kind.TABLE else "KEY"
    if wrong := next((column for column in source.keys if column.key != expected), None):
        kind = "table" if source.kind is s.Kind.TABLE else "stream"
        raise QueryError(f"The key of a {kind} is declared with {expected}: {wrong.name}.")
    if source.kind is s.Kind.TABLE and not source.keys:
        raise QueryError("A table needs a key: declare the column that is the record's key with PRIMARY KEY.")
    if source.key_format == "KAFKA" and not fits_kafka(source.keys):
        raise QueryError(
            "A key in the format KAFKA is one column of the type VARCHAR, INTEGER or BIGINT: use key_format = 'JSON'."
        )


def fits_kafka(keys: Sequence[s.ColumnDefinition]) -> bool:
    """Whether these key columns can be written in the format KAFKA."""
    return not keys or (len(keys) == 1 and keys[0].type in _KAFKA_KEYS)


def renamed(source: Source, name: str) -> Source:
    return replace(source, name=name)
