"""The demo of Connect SQL: pageviews in Kafka joined with users in PostgreSQL, on the running installation.

What it does is what docs/guides/sql-tutorial.md lets a user do by hand.
"""

import time
from collections.abc import Callable
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection

from backend.apps.sql.terminal import Client

DATABASE = "headrace_demo_sql"
_SECONDS = 240.0
"""Spark starts when the first query is made."""

Say = Callable[[str], None]

_TABLE = """
CREATE TABLE IF NOT EXISTS users (
  id text PRIMARY KEY, name text, country text, updated_at timestamptz NOT NULL DEFAULT now());
INSERT INTO users VALUES ('u1', 'Ana', 'BR'), ('u2', 'Ben', 'DE')
  ON CONFLICT (id) DO UPDATE SET country = excluded.country, updated_at = now();
"""
_MOVE = "UPDATE users SET country = 'PT', updated_at = now() WHERE id = 'u1'"

_DECLARATIONS = """
CREATE STREAM IF NOT EXISTS demo_pageviews (viewid BIGINT KEY, userid VARCHAR, page VARCHAR)
  WITH (kafka_topic = 'demo-pageviews', partitions = 2);
"""
_CONNECTOR = """
CREATE OR REPLACE SECRET demo_postgresql AS '{password}';
CREATE SOURCE CONNECTOR IF NOT EXISTS demo WITH (
  connector.class = sql, dialect = postgresql, host = '{host}', port = {port}, database = {database},
  user = '{user}', password = '${{secret:demo_postgresql}}', tls = disable,
  tables = users, mode = timestamp, timestamp.column.name = updated_at);
"""
_JOIN = """
CREATE STREAM IF NOT EXISTS demo_enriched WITH (kafka_topic = 'demo-enriched') AS
  SELECT p.userid AS userid, viewid, page, u.name AS name, u.country AS country
  FROM demo_pageviews p LEFT JOIN demo_users u ON p.userid = u.id
  EMIT CHANGES;
"""


class DemoError(Exception):
    """The demo cannot go on; the message says why."""


class SqlDemo:
    """Runs the demo with an API key of a workspace. Its methods raise DemoError and UnreachableError."""

    def __init__(self, key: str, say: Say) -> None:
        self._client = Client(settings.CONSOLE.public_url, key)
        self._say = say

    def run(self) -> None:
        self._prepare_database()
        self._say("PostgreSQL has the users Ana (BR) and Ben (DE).")
        self._execute(_DECLARATIONS)
        for line in self._execute(_CONNECTOR.format(**self._addresses())):
            self._say(line["message"] or " ".join(line["warnings"]))
        self._execute(_JOIN)
        self._wait_for_user("u1", "BR")
        first = self._view("u1", "/home")
        self._say(f"Ana looked at /home: {self._enriched(first)}.")
        self._change(_MOVE)
        self._wait_for_user("u1", "PT")
        self._say("Ana moved to PT, which the pipeline has brought into the table.")
        second = self._view("u1", "/help")
        self._say(f"Ana looked at /help: {self._enriched(second)}.")
        before, after = self._enriched(first), self._enriched(second)
        if (before["country"], after["country"]) != ("BR", "PT"):
            raise DemoError(f"The pageviews should say BR and PT, and say {before} and {after}.")
        self._say("The earlier pageview still says BR: a change is seen by later rows only.")

    def _prepare_database(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE])
            if cursor.fetchone() is None:
                cursor.execute(f"CREATE DATABASE {DATABASE}")
        self._change(_TABLE)

    def _change(self, statements: str) -> None:
        parameters = connection.get_connection_params()
        login = {name: parameters[name] for name in ("host", "port", "user", "password") if name in parameters}
        with psycopg.connect(dbname=DATABASE, autocommit=True, **login) as database:
            database.execute(statements)  # type: ignore[arg-type]

    @staticmethod
    def _addresses() -> dict[str, Any]:
        database = settings.DATABASES["default"]
        return {
            "host": database["HOST"],
            "port": database["PORT"],
            "user": database["USER"],
            "password": str(database["PASSWORD"]).replace("'", "''"),
            "database": DATABASE,
        }

    def _execute(self, text: str) -> list[dict[str, Any]]:
        lines = list(self._client.execute(text))
        if lines and lines[-1]["type"] == "error":
            raise DemoError(f"{lines[-1]['message']} {lines[-1]['properties'] or ''}".rstrip())
        return lines

    def _view(self, user: str, page: str) -> int:
        view = time.time_ns() // 1_000_000
        self._execute(f"INSERT INTO demo_pageviews VALUES ({view}, '{user}', '{page}')")
        return view

    def _wait_for_user(self, user: str, country: str) -> None:
        text = f"SELECT country FROM demo_users WHERE id = '{user}'"
        self._wait_for(lambda: [country] in self._rows(text), f"The table should say that {user} is in {country}.")

    def _enriched(self, view: int) -> dict[str, Any]:
        text = f"SELECT viewid, userid, page, name, country FROM demo_enriched WHERE viewid = {view}"
        rows: list[list[Any]] = []

        def is_there() -> bool:
            rows[:] = self._rows(text)
            return bool(rows)

        self._wait_for(is_there, "The query should have given the pageview: SHOW QUERIES says how it does.")
        return dict(zip(("viewid", "userid", "page", "name", "country"), rows[0], strict=True))

    def _rows(self, text: str) -> list[list[Any]]:
        return [row for line in self._execute(text) if line["type"] == "rows" for row in line["rows"]]

    def _wait_for(self, condition: Callable[[], bool], sentence: str) -> None:
        end = time.monotonic() + _SECONDS
        while not condition():
            if time.monotonic() > end:
                raise DemoError(f"{sentence} It did not within {_SECONDS:.0f} s.")
            time.sleep(0.5)
