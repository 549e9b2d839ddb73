"""Rows of one database become rows of others, through the whole platform."""

import uuid
from decimal import Decimal
from typing import Any

import psycopg

from backend.domain import json
from backend.domain.message import new_message_id
from tests import infra, mariadb
from tests.infra import DATABASE_URL, PASSWORD, POSTGRESQL_PORT
from tests.installation import Installation
from tests.mariadb import MARIADB_PORT, mariadb_server  # noqa: F401
from tests.waiting import wait_until

RECORDS: list[dict[str, Any]] = [
    {"id": 1, "text": 'São Paulo, "quoted", it\'s\na \\ line; %s 日本語 🚀', "flag": True},
    {"id": 2, "flag": False, "big": 2**63 - 1},
    {"id": 3, "text": "", "big": -(2**63)},
    {"id": 4, "amount": Decimal("12345678901234567890.123456789")},
    {"id": 5, "at": "2026-01-31T23:59:59.123456-03:00"},
    {"id": 6, "document": {"a": [1, {"b": None}, "x,y"], "n": Decimal("0.10"), "big": 2**63}},
    {"id": 7, "text": "é" * 450_000},
]
COLUMNS = "id bigint PRIMARY KEY, text {text}, flag boolean, big bigint, amount decimal(40, 9), at {at}, document json"


def connector(installation: Installation, dialect: str, port: int, database: str) -> str:
    connection = {
        "dialect": dialect,
        "host": "127.0.0.1",
        "port": port,
        "database": database,
        "user": "headrace",
        "password": PASSWORD,
        "tls": "disable",
    }
    named = {"name": f"{dialect} {new_message_id()}", "type": "sql", "connection": connection}
    return str(installation.create("connectors/", named)["id"])


def test_rows_reach_other_databases_field_by_field(
    installation: Installation,
    postgresql: infra.Server,
    mariadb_server: infra.Server,  # noqa: F811
) -> None:
    source, target = (f"t_{uuid.uuid4().hex}" for _ in range(2))
    with psycopg.connect(DATABASE_URL, autocommit=True) as database, mariadb.connected() as other:

        def rows_of(table: str) -> list[dict[str, Any]]:
            texts = database.execute(f"SELECT row_to_json(r)::text FROM {table} AS r ORDER BY id".encode()).fetchall()
            return [json.loads(text) for (text,) in texts]

        def rows_of_other() -> list[tuple[Any, ...]]:
            other.ping()
            with other.cursor() as cursor:
                cursor.execute(f"SELECT id, text, flag, big, amount, document FROM {target} ORDER BY id")
                return list(cursor.fetchall())

        columns = COLUMNS.format(text="text", at="timestamptz")
        for table in (source, target):
            database.execute(f"CREATE TABLE {table} ({columns})".encode())
        database.execute(
            f"INSERT INTO {source} SELECT * FROM json_populate_recordset(NULL::{source}, %s)".encode(),
            [json.dumps(RECORDS).decode()],
        )
        with other.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {target} ({COLUMNS.format(text='longtext', at='timestamp(6) NULL')})")

        here = connector(installation, "postgresql", POSTGRESQL_PORT, "postgres")
        there = connector(installation, "mysql", MARIADB_PORT, mariadb.DATABASE)
        _, checked = installation.api("POST", f"connectors/{here}/test/", {})
        assert "Connected to PostgreSQL" in json.dumps(checked).decode()
        options = {"source": {"type": "table", "table": source}, "mode": {"type": "incrementing", "column": "id"}}
        config = {
            "input": {"type": "connector", "connector": here, "options": options},
            "outputs": [
                {"name": "same", "connector": here, "options": {"table": target}, "batch": {"messages": 3}},
                {"name": "other", "connector": there, "options": {"table": target}},
            ],
        }
        pipeline = installation.create("pipelines/", {"name": "Rows", "config": config})["id"]
        installation.create(f"pipelines/{pipeline}/publish/", {})

        wait_until(lambda: len(rows_of(target)) == len(RECORDS), 120)
        assert rows_of(target) == rows_of(source)
        wait_until(lambda: len(rows_of_other()) == len(RECORDS))
        for row, record in zip(rows_of_other(), RECORDS, strict=True):
            flag = record.get("flag")
            expected = (record["id"], record.get("text"), flag, record.get("big"), record.get("amount"))
            assert row[:5] == expected
            assert (row[5] and json.loads(row[5])) == record.get("document")

        # What is added later is read from the breakpoint on.
        database.execute(f"INSERT INTO {source} (id, text) VALUES (8, 'later')".encode())
        wait_until(lambda: len(rows_of(target)) == len(RECORDS) + 1, 90)

        def counts() -> dict[str, int]:
            _, metrics = installation.api("GET", f"pipelines/{pipeline}/metrics/")
            return dict(metrics["last_24_hours"])

        wait_until(lambda: counts().get("output.other.delivered") == len(RECORDS) + 1)
        assert counts()["input.accepted"] == len(RECORDS) + 1
        installation.create(f"pipelines/{pipeline}/pause/", {})
