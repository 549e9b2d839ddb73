"""What statements answer. ``type`` tells the kinds apart; the names are those of ksqlDB where it has them.

The API's serializers are made of these classes, and their descriptions of the annotations.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any

Direction = Annotated[str, "source, sink, both or none."]
Trace = Annotated[str, "Why it failed, without secrets."]
Kind = Annotated[str, "stream or table."]


@dataclass(frozen=True, kw_only=True)
class Entity:
    """Base of all."""

    type: str
    statement: Annotated[str, "The statement, with ******** in place of values that may be secrets."] = ""
    message: Annotated[str, "What was done."] = ""
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Message(Entity):
    """A statement that has nothing to show."""

    type: str = "message"


@dataclass(frozen=True)
class ListedConnector:
    """A connector, of whichever home."""

    name: str
    home: Annotated[str, "The Kafka Connect cluster, or Headrace."]
    direction: Direction
    connector_class: str
    state: str


@dataclass(frozen=True, kw_only=True)
class ConnectorList(Entity):
    """Connectors."""

    type: str = "connector_list"
    connectors: list[ListedConnector]


@dataclass(frozen=True)
class Plugin:
    """A class of connectors."""

    connector_class: str
    direction: Direction
    version: str
    home: str


@dataclass(frozen=True, kw_only=True)
class PluginList(Entity):
    """Classes of connectors."""

    type: str = "connector_plugins_list"
    plugins: list[Plugin]


@dataclass(frozen=True)
class Task:
    """A part of a connector's work."""

    id: int
    state: str
    worker: str
    trace: Trace


@dataclass(frozen=True, kw_only=True)
class ConnectorDescription(Entity):
    """A connector; ``worker`` and ``trace`` are those of the connector itself."""

    type: str = "connector_description"
    name: str
    home: str
    direction: Direction
    connector_class: str
    state: str
    worker: str = ""
    trace: Trace = ""
    tasks: list[Task] = field(default_factory=list)
    topics: Annotated[list[str], "Topics that it has used."] = field(default_factory=list)
    used_by: Annotated[list[str], "Pipelines that use it."] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class NameList(Entity):
    """The names of secrets, or of variables."""

    type: str = "name_list"
    names: list[str]


@dataclass(frozen=True)
class ListedSource:
    """A stream or table."""

    name: str
    kind: Kind
    topic: str
    key_format: str
    value_format: str
    windowed: bool


@dataclass(frozen=True, kw_only=True)
class SourceList(Entity):
    """The streams, or the tables."""

    type: str = "source_list"
    sources: list[ListedSource]


@dataclass(frozen=True)
class ListedTopic:
    """A topic."""

    name: str
    partitions: int


@dataclass(frozen=True, kw_only=True)
class TopicList(Entity):
    """The topics that the workspace may use."""

    type: str = "kafka_topics"
    topics: list[ListedTopic]


@dataclass(frozen=True)
class ListedQuery:
    """A query."""

    id: str
    kind: Annotated[str, "persistent, pipeline (the SQL of one's stream processing) or reading (its rows are read)."]
    state: Annotated[str, "STARTING, RUNNING or ERROR."]
    sink: str
    topic: str
    rows_per_second: float
    behind: Annotated[int, "Rows that wait."]
    state_rows: int
    state_bytes: int
    failures: int
    error: Annotated[str, "Why it failed last; empty once it runs well again."]
    text: str


@dataclass(frozen=True, kw_only=True)
class QueryList(Entity):
    """The queries of the workspace."""

    type: str = "queries"
    queries: list[ListedQuery]


@dataclass(frozen=True)
class Column:
    """A column of a stream, a table or a result."""

    name: str
    type: str
    key: Annotated[str, "KEY or PRIMARY KEY of a column in a record's key."] = ""


@dataclass(frozen=True, kw_only=True)
class SourceDescription(Entity):
    """A stream or table."""

    type: str = "source_description"
    name: str
    kind: Kind
    topic: str
    key_format: str
    value_format: str
    columns: list[Column]
    read_by: Annotated[list[str], "Queries that read it."]
    written_by: Annotated[list[str], "Queries that write to it."]
    definition: Annotated[str, "The statement that declares it."]


@dataclass(frozen=True, kw_only=True)
class QueryDescription(Entity):
    """How a query is executed."""

    type: str = "query_description"
    id: str
    state: str
    error: str
    reads: list[str]
    topic: str
    columns: list[Column]
    join: str
    select: Annotated[str, "What Spark runs on the rows that are read and joined."]


@dataclass(frozen=True, kw_only=True)
class Reading(Entity):
    """A query whose rows follow."""

    type: str = "reading"
    id: Annotated[str, "TERMINATE ends it."]
    columns: list[Column]


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of the query that was announced last. None now and then means that the query goes on."""

    type: str = "rows"
    rows: Annotated[
        list[list[Any]],
        "A value for each of the columns: times in ISO 8601, bytes in Base64, decimals and large numbers as texts.",
    ]


@dataclass(frozen=True)
class Failure:
    """Why a statement was not executed, and where that is in the text."""

    message: str
    status: Annotated[int, "The HTTP status that fits it, which is also that of an answer that is not streamed."]
    line: Annotated[int, "Counted from 1; of the statement, or of the syntax error."]
    column: Annotated[int, "Counted from 1."] = 1
    expected: Annotated[list[str], "What the language allows there."] = field(default_factory=list)
    properties: Annotated[
        dict[str, list[str]], "Every invalid or missing property of the WITH clause, each with its reasons."
    ] = field(default_factory=dict)
    statement: Annotated[str, "Masked, as in results."] = ""
    type: str = "error"


@dataclass(frozen=True)
class Language:
    """The words of the language, in upper case."""

    keywords: list[str]
    functions: list[str]


@dataclass(frozen=True)
class Check:
    """What is wrong with the syntax of a text."""

    error: Failure | None


@dataclass(frozen=True)
class Objects:
    """What the statements of a workspace can name, beside connectors and queries."""

    sources: Annotated[list[SourceDescription], "Streams and tables."]
    topics: list[ListedTopic]
    warnings: Annotated[list[str], "Why something is missing."]


ENTITIES: tuple[type[Entity], ...] = (
    *(Message, ConnectorList, PluginList, ConnectorDescription, NameList, SourceList, TopicList, QueryList),
    *(SourceDescription, QueryDescription),
)
"""What statements answer that give no rows."""
