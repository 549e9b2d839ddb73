"""Reads the rows of SELECT and PRINT."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import requests
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as KafkaRecord

from backend.apps.sql import topics
from backend.apps.sql.catalogue import Catalogue, demand
from backend.apps.sql.entities import Column, Entity, Message, Reading, Rows
from backend.apps.sql.errors import SqlError
from backend.apps.sql.leases import Lease, reading
from backend.apps.sql.models import SqlSource
from backend.apps.workspaces.models import Workspace
from backend.domain.connect_sql import reading as domain
from backend.domain.connect_sql import statements as s
from backend.domain.connect_sql.avro import to_json
from backend.domain.connect_sql.evaluation import NotEvaluatedError, milliseconds
from backend.domain.connect_sql.plans import Input, Plan
from backend.domain.connect_sql.printer import printed, type_name
from backend.domain.connect_sql.records import Record, RecordReader, UnreadableError, shown
from backend.domain.connect_sql.sources import source_of
from backend.kafka.client.scan import TopicScan
from backend.network.schema_registry import SchemaRegistry
from backend.settings import platform_settings

Line = Entity | Rows
_BATCH = 500
_POLL_SECONDS = 0.5
_STILL_THERE_SECONDS = 5.0
"""A reader hears of a query at least that often."""
_MOST_KEYS = 100_000
"""Keys that a query without EMIT CHANGES may find."""
_LONGEST_READ = timedelta(seconds=60)
_TOPIC_SECONDS = 30.0
_PRINTED = [
    Column("ROWTIME", "TIMESTAMP"),
    Column("KEY", "VARCHAR"),
    Column("VALUE", "VARCHAR"),
    Column("ROWPARTITION", "INTEGER"),
    Column("ROWOFFSET", "BIGINT"),
]


class Reader:
    """Executes SELECT and PRINT: first a Reading, then Rows, and at the end a Message. Its methods raise SqlError and
    QueryError."""

    def __init__(self, workspace: Workspace, catalogue: Catalogue, *, from_beginning: bool) -> None:
        self._workspace = workspace
        self._catalogue = catalogue
        self._from_beginning = from_beginning
        self._avro = to_json(_schemas())

    def select(self, statement: s.Select) -> Iterator[Line]:
        query = statement.query
        relations = [query.source, *(join.relation for join in query.joins)]
        records = [self._catalogue.get(relation.name) for relation in relations]
        sources = [source_of(record.definition) for record in records]
        try:
            selected = domain.reading_of(query, sources[0])
        except NotEvaluatedError:
            topic = topics.topic_of_reading()
            plan, selected = domain.spark_reading(query, sources, topic)
            yield from self._by_spark(statement, plan, selected, records)
            return
        if query.emit is None:
            yield from self._pull(statement, selected, records)
        else:
            yield from self._push(statement, selected, records)

    def print(self, statement: s.Print) -> Iterator[Line]:
        if statement.topic not in topics.topic_partitions(self._workspace):
            raise SqlError(f"There is no topic {statement.topic}: SHOW TOPICS lists those there are.", status=404)
        with (
            reading(workspace=self._workspace, start="PRINT", statement=printed(statement), reads=[]) as lease,
            closing(_scan(statement.topic, from_beginning=statement.from_beginning)) as scan,
        ):
            yield Reading(id=lease.query.name, columns=_PRINTED)
            yield from _followed(scan, lease, self._as_text, statement.limit)

    def _push(self, statement: s.Select, selected: domain.Reading, records: list[SqlSource]) -> Iterator[Line]:
        with (
            reading(workspace=self._workspace, start="PUSH", statement=printed(statement), reads=records) as lease,
            closing(_scan(selected.source.topic, from_beginning=self._from_beginning)) as scan,
        ):
            yield _announced(lease, selected)
            yield from _followed(scan, lease, self._row(selected), selected.limit)

    def _pull(self, statement: s.Select, selected: domain.Reading, records: list[SqlSource]) -> Iterator[Line]:
        with (
            reading(workspace=self._workspace, start="PULL", statement=printed(statement), reads=records) as lease,
            closing(_scan(selected.source.topic, from_beginning=True)) as scan,
        ):
            yield _announced(lease, selected)
            is_table = selected.source.kind is s.Kind.TABLE
            found = self._latest(scan, lease, selected) if is_table else _until_now(scan, lease)
            row, count, limit = self._row(selected), 0, selected.limit
            for batch in found:
                rows = [one for one in map(row, batch) if one is not None]
                rows = rows if limit is None else rows[: limit - count]
                count += len(rows)
                yield Rows(rows=rows)
                if count == limit:
                    break
            yield _ended(count)

    def _by_spark(
        self, statement: s.Select, plan: Plan, selected: domain.Reading, records: list[SqlSource]
    ) -> Iterator[Line]:
        stored = msgspec.to_builtins(replace(plan, inputs=[self._from_now(one) for one in plan.inputs]))
        with reading(
            workspace=self._workspace, start="PUSH", statement=printed(statement), reads=records, plan=stored
        ) as lease:
            topics.topic_make(plan.topic, partitions=1, replicas=None, compacted=False)
            demand()
            text = "Spark runs this query, since it joins or groups: the first rows take some ten seconds."
            yield replace(_announced(lease, selected), message=text)
            with closing(_scan_of_new(plan.topic)) as scan:
                yield from _followed(scan, lease, self._row(selected), selected.limit)

    def _from_now(self, read: Input) -> Input:
        """A stream from the records that are written from now on, unless those that are there are wanted too."""
        if self._from_beginning or read.is_table:
            return replace(read, from_beginning=True)
        with closing(_scan(read.topic, from_beginning=False)) as scan:
            return replace(read, starts={str(partition): offset for partition, offset in scan.starts.items()})

    def _row(self, selected: domain.Reading) -> Callable[[KafkaRecord], list[Any] | None]:
        """Gives the values of a record's row; None if it is not selected, has no value, or cannot be read."""
        reader = RecordReader(selected.source, self._avro)

        def row(record: KafkaRecord) -> list[Any] | None:
            if record.value() is None or not selected.of_keys(reader.key(_bytes(record.key()))):
                return None
            try:
                values = selected.selected(reader.row(_plain(record)))
            except UnreadableError:
                return None
            except requests.RequestException as error:
                raise SqlError(f"The schema registry does not answer: {type(error).__name__}.", status=502) from None
            return None if values is None else [shown(value) for value in values]

        return row

    def _latest(self, scan: TopicScan, lease: Lease, selected: domain.Reading) -> Iterator[list[KafkaRecord]]:
        """The latest record of each key that fulfils the condition."""
        reader = RecordReader(selected.source, self._avro)
        latest: dict[bytes, KafkaRecord] = {}
        for batch in _until_now(scan, lease):
            for record in batch:
                key = _bytes(record.key())
                if key is None:
                    continue
                latest.pop(key, None)
                if record.value() is not None and selected.of_keys(reader.key(key)):
                    latest[key] = record
            if len(latest) > _MOST_KEYS:
                text = f"The table has more than {_MOST_KEYS:,} rows like this: add a condition on its key to WHERE."
                raise SqlError(text)
        yield list(latest.values())

    def _as_text(self, record: KafkaRecord) -> list[Any]:
        plain = _plain(record)
        key, value = (self._text(part) for part in (plain.key, plain.value))
        return [shown(milliseconds(plain.timestamp)), key, value, plain.partition, plain.offset]

    def _text(self, raw: bytes | None) -> str | None:
        """A text as it is, Avro as JSON, and other bytes as hexadecimal numbers."""
        if raw is None:
            return None
        try:
            if raw[:1] == b"\0" and (text := self._avro(raw)):
                return text
            return raw.decode()
        except (requests.RequestException, UnicodeDecodeError, ValueError):
            return raw.hex(" ")


def _announced(lease: Lease, selected: domain.Reading) -> Reading:
    columns = [Column(one.name, type_name(one.type)) for one in selected.columns]
    return Reading(id=lease.query.name, columns=columns)


def _ended(count: int) -> Message:
    return Message(message=f"{count:,} {'row' if count == 1 else 'rows'}.")


def _followed(
    scan: TopicScan, lease: Lease, row: Callable[[KafkaRecord], list[Any] | None], limit: int | None
) -> Iterator[Line]:
    """The rows as they come, until there are so many, or the query is terminated."""
    count, said = 0, time.monotonic()
    while count != limit:
        with topics.kafka_errors():
            records = scan.records(_BATCH, _POLL_SECONDS)
        rows = [one for one in map(row, records) if one is not None]
        rows = rows if limit is None else rows[: limit - count]
        count += len(rows)
        if rows or time.monotonic() - said > _STILL_THERE_SECONDS:
            said = time.monotonic()
            yield Rows(rows=rows)
        if not lease.renew():
            yield Message(message=f"{lease.query.name} was terminated.")
            return
    yield _ended(count)


def _until_now(scan: TopicScan, lease: Lease) -> Iterator[list[KafkaRecord]]:
    """What the topic has. Raises SqlError when that takes too long."""
    began = time.monotonic()
    with topics.kafka_errors():
        for batch in scan.until_caught_up():
            yield batch
            if time.monotonic() - began > _LONGEST_READ.total_seconds():
                text = f"The topic has more records than can be read in {_LONGEST_READ.seconds} s: write EMIT CHANGES."
                raise SqlError(text)
            if not lease.renew():
                raise SqlError(f"{lease.query.name} was terminated.", status=409)


def _scan(topic: str, *, from_beginning: bool) -> TopicScan:
    with topics.kafka_errors():
        return TopicScan(platform_settings().kafka, topic, last=None if from_beginning else 0)


def _scan_of_new(topic: str) -> TopicScan:
    """Of a topic that was just made, whose leader is perhaps not known yet."""
    began = time.monotonic()
    while True:
        try:
            return TopicScan(platform_settings().kafka, topic)
        except KafkaException as error:
            if time.monotonic() - began > _TOPIC_SECONDS:
                raise SqlError(f"Kafka does not do this: {error.args[0].str()}.", status=502) from None
            if error.args[0].code() not in _NOT_YET:
                raise
            time.sleep(_POLL_SECONDS)


_NOT_YET = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._TIMED_OUT,
)


def _schemas() -> Callable[[int], Any]:
    return SchemaRegistry(platform_settings()).schema


def _plain(record: KafkaRecord) -> Record:
    return Record(
        key=_bytes(record.key()),
        value=_bytes(record.value()),
        timestamp=record.timestamp()[1],
        partition=record.partition() or 0,
        offset=record.offset() or 0,
    )


def _bytes(part: str | bytes | None) -> bytes | None:
    return part.encode() if isinstance(part, str) else part
