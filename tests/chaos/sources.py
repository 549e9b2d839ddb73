"""What tenants write to when their pipeline reads its input instead of receiving requests.

A document has an ``id``, by which it is known at the receiver: the platform chooses the message's id.
"""

import json
from abc import ABC, abstractmethod
from typing import Any
from urllib.parse import urlsplit

import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from psycopg import sql

from tests.waiting import LIMIT_SECONDS

Document = dict[str, Any]
_PATIENCE_SECONDS = 10


class Source(ABC):
    """``connector`` and ``options`` are what a pipeline's input needs to read it."""

    connector: dict[str, Any]
    options: dict[str, Any]

    @abstractmethod
    def write(self, documents: list[Document]) -> bool:
        """Whether it has all of them now. Writing the same documents again adds none twice."""


class Topic(Source):
    """A Kafka topic with a partition for each few keys. Its producer is idempotent and never abandons a record."""

    def __init__(self, bootstrap: str, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        [created] = admin.create_topics([NewTopic(name, 2, 1)]).values()
        created.result(LIMIT_SECONDS)
        self._name = name
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 0, "linger.ms": 0}
        )
        self.connector = {"type": "kafka", "connection": {"bootstrap_servers": bootstrap}}
        self.options = {"topics": [name], "group": name}

    def write(self, documents: list[Document]) -> bool:
        for document in documents:
            self._producer.produce(self._name, json.dumps(document), key=document["key"])
        while self._producer.flush(_PATIENCE_SECONDS):
            pass
        return True


class Table(Source):
    """A PostgreSQL table, read by its growing number."""

    def __init__(self, url: str, name: str) -> None:
        self._url, self._name = url, sql.Identifier(name)
        with psycopg.connect(url, autocommit=True) as connection:
            columns = "(n bigint PRIMARY KEY, id text, key text, note text, pad text)"
            connection.execute(sql.SQL("CREATE TABLE {} " + columns).format(self._name))
        parts = urlsplit(url)
        connection_fields = {
            "dialect": "postgresql",
            "host": parts.hostname,
            "port": parts.port,
            "database": parts.path.strip("/"),
            "user": parts.username,
            "password": parts.password,
            "tls": "disable",
        }
        self.connector = {"type": "sql", "connection": connection_fields}
        self.options = {
            "source": {"type": "table", "table": name},
            "mode": {"type": "incrementing", "column": "n"},
        }

    def write(self, documents: list[Document]) -> bool:
        statement = sql.SQL(
            "INSERT INTO {} VALUES (%(n)s, %(id)s, %(key)s, %(note)s, %(pad)s) ON CONFLICT DO NOTHING"
        ).format(self._name)
        try:
            with psycopg.connect(self._url, connect_timeout=_PATIENCE_SECONDS) as connection:
                connection.cursor().executemany(statement, documents)
        except psycopg.Error:  # it may have them: they are written again
            return False
        return True
