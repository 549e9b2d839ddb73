"""Statements about streams, tables and queries: what they answer."""

from collections.abc import Iterator

from backend.apps.sql import topics
from backend.apps.sql.catalogue import Catalogue, plan_from
from backend.apps.sql.entities import (
    Column,
    Entity,
    ListedQuery,
    ListedSource,
    ListedTopic,
    Message,
    Objects,
    QueryDescription,
    QueryList,
    SourceDescription,
    SourceList,
    TopicList,
)
from backend.apps.sql.errors import SqlError
from backend.apps.sql.models import SqlQuery, SqlSource
from backend.apps.sql.readings import Line, Reader
from backend.apps.sql.rows import row_insert
from backend.apps.workspaces.models import User, Workspace
from backend.domain.connect_sql import statements as s
from backend.domain.connect_sql.plans import Plan, Target, is_grouped
from backend.domain.connect_sql.printer import type_name
from backend.domain.connect_sql.sources import Source, source_of


class Streams:
    """Executes statements about streams, tables and queries. Its methods raise SqlError and QueryError."""

    def __init__(self, workspace: Workspace, actor: User) -> None:
        self._workspace = workspace
        self._catalogue = Catalogue(workspace, actor)

    def read(self, statement: s.Select | s.Print, *, from_beginning: bool) -> Iterator[Line]:
        """Executes a statement whose rows are streamed."""
        reader = Reader(self._workspace, self._catalogue, from_beginning=from_beginning)
        return reader.select(statement) if isinstance(statement, s.Select) else reader.print(statement)

    def execute(self, statement: s.Statement) -> Entity:
        match statement:
            case s.Show(listing=listing):
                return self._show(listing)
            case s.Declare():
                return Message(message=self._catalogue.declare(statement))
            case s.CreateAs():
                return Message(message=self._catalogue.create_as(statement))
            case s.InsertSelect():
                return Message(message=self._catalogue.insert_select(statement))
            case s.InsertValues(name=name):
                row_insert(source_of(self._catalogue.get(name).definition), statement)
                return Message(message="Inserted one row.")
            case s.DropSource():
                dropped = self._catalogue.drop(statement)
                if dropped is None:
                    return Message(warnings=[f"There is no stream or table {statement.name}."])
                return Message(message=dropped)
            case s.Terminate(query_id=query_id):
                ended = self._catalogue.terminate(query_id)
                names = ", ".join(ended) or "nothing, since no query runs"
                return Message(message=f"Terminated {names}. What was written stays.")
            case s.Explain(subject=subject):
                return self._explain(subject)
        raise SqlError("The rows of this statement are streamed: send it to /api/v1/sql/stream/.")

    def describe(self, name: str) -> SourceDescription | None:
        """None if there is no stream or table of this name."""
        record = self._catalogue.find(name)
        return None if record is None else self._description(record)

    @staticmethod
    def _description(record: SqlSource) -> SourceDescription:
        source = source_of(record.definition)
        return SourceDescription(
            name=source.name,
            kind=source.kind.lower(),
            topic=source.topic,
            key_format=source.key_format,
            value_format=source.value_format,
            columns=_columns(source),
            read_by=list(record.readers.values_list("name", flat=True)),
            written_by=list(record.writers.values_list("name", flat=True)),
            definition=record.definition,
        )

    def objects(self) -> Objects:
        """Without the topics if Kafka does not answer."""
        known: dict[str, int] = {}
        warnings = []
        try:
            known = topics.topic_partitions(self._workspace)
        except SqlError as error:
            warnings.append(error.message)
        return Objects(
            sources=[self._description(record) for record in self._catalogue.sources()],
            topics=[ListedTopic(name, partitions) for name, partitions in known.items()],
            warnings=warnings,
        )

    def _show(self, listing: s.Listing) -> Entity:
        match listing:
            case s.Listing.TOPICS:
                known = topics.topic_partitions(self._workspace)
                return TopicList(topics=[ListedTopic(name, partitions) for name, partitions in known.items()])
            case s.Listing.QUERIES:
                return QueryList(queries=[_listed_query(query) for query in self._catalogue.queries()])
        kind = s.Kind.STREAM if listing is s.Listing.STREAMS else s.Kind.TABLE
        sources = [source_of(record.definition) for record in self._catalogue.sources()]
        return SourceList(sources=[_listed(source) for source in sources if source.kind is kind])

    def _explain(self, subject: str | s.Query | s.CreateAs) -> Entity:
        if isinstance(subject, str):
            running = self._catalogue.query(subject)
            if running.plan is None:
                raise SqlError(f"{running.name} is read without Spark: there is no plan.", status=409)
            columns = _columns(source_of(running.sink.definition)) if running.sink else []
            return _described(plan_from(running), columns, list(running.reads.all()), running)
        query = subject.query if isinstance(subject, s.CreateAs) else subject
        kind = subject.kind if isinstance(subject, s.CreateAs) else self._kind(query)
        name = subject.name if isinstance(subject, s.CreateAs) else "result"
        plan, source, reads = self._catalogue.plan(query, Target(kind, name))
        return _described(plan, _columns(source), reads, None)

    def _kind(self, query: s.Query) -> s.Kind:
        if is_grouped(query):
            return s.Kind.TABLE
        return source_of(self._catalogue.get(query.source.name).definition).kind


def _described(plan: Plan, columns: list[Column], reads: list[SqlSource], query: SqlQuery | None) -> QueryDescription:
    return QueryDescription(
        id=query.name if query else "",
        state=_state(query) if query else "",
        error=query.error if query else "",
        reads=[record.name for record in reads],
        topic=plan.topic,
        columns=columns,
        join=_join(plan),
        select=plan.select,
    )


def _join(plan: Plan) -> str:
    if (join := plan.join) is not None:
        return f"{'LEFT' if join.keeps_unmatched else 'INNER'} JOIN ON {join.stream_key} = {join.table_key}"
    if (tables := plan.tables_join) is not None:
        return f"{tables.kind} JOIN ON {tables.left_key} = {tables.right_key}"
    if (near := plan.stream_join) is not None:
        kind = near.kind.removesuffix("_outer").upper()
        return f"{kind} JOIN WITHIN ({near.before} ms, {near.after} ms) ON {near.left_key} = {near.right_key}"
    return ""


def _columns(source: Source) -> list[Column]:
    return [Column(column.name, type_name(column.type), column.key or "") for column in source.columns]


def _listed(source: Source) -> ListedSource:
    return ListedSource(
        name=source.name,
        kind=source.kind.lower(),
        topic=source.topic,
        key_format=source.key_format,
        value_format=source.value_format,
        windowed=source.window is not None,
    )


def _listed_query(query: SqlQuery) -> ListedQuery:
    return ListedQuery(
        id=query.name,
        kind="pipeline" if query.pipeline_id else "persistent" if query.read_until is None else "reading",
        state=_state(query),
        sink=query.sink.name if query.sink else "",
        topic=query.sink.topic if query.sink else "",
        rows_per_second=round(query.rows_per_second, 1),
        behind=query.behind,
        state_rows=query.state_rows,
        state_bytes=query.state_bytes,
        failures=query.failures,
        error=query.error,
        text=query.statement,
    )


def _state(query: SqlQuery) -> str:
    if query.error:
        return "ERROR"
    return "RUNNING" if query.running else "STARTING"
