"""The SQL output, against PostgreSQL and MariaDB."""

from decimal import Decimal
from typing import Any

import pytest

from backend.connectors.parts.database import SqlConnection
from backend.connectors.sql import SqlDatabase
from backend.domain import json as exact
from backend.domain.capabilities import BatchRefusedError, Receipt
from backend.domain.connector import CheckFailedError, check_connection
from tests import mariadb
from tests.integration.connectors.sql.databases import Mariadb, Postgresql, read
from tests.integration.connectors.sql.outputs import RowOutputs
from tests.integration.connectors.suites import DeliverBatchSuite, message


class _SqlOutputs(RowOutputs):
    type = "sql"

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"password": "wrong-password"}, "password"),
            ({"host": "nowhere.invalid"}, "host"),
            ({"port": 1}, "host"),
            ({"database": "absent"}, "database"),
            ({"tls": "require"}, "tls"),
        ],
    )
    async def test_a_wrong_connection_is_explained_at_its_field(self, fields: dict[str, Any], field: str) -> None:
        connection = SqlConnection.model_validate(self.connection(**fields))
        with pytest.raises(CheckFailedError) as failed:
            await check_connection(SqlDatabase, connection)
        assert failed.value.field == field
        assert "wrong-password" not in str(failed.value)


class TestPostgresqlOutput(Postgresql, _SqlOutputs, DeliverBatchSuite):
    async def test_types_of_its_own_are_kept(self) -> None:
        columns = (
            "id uuid PRIMARY KEY, made int GENERATED ALWAYS AS IDENTITY, "
            "twice int GENERATED ALWAYS AS (made * 2) STORED, "
            "raw bytea, list int[], day date, clock time, plain timestamp, lasted interval, address inet, real float8, "
            "word text DEFAULT 'word'"
        )
        table = self.table(columns)
        row = {
            "id": "0199d1a0-0000-7000-8000-000000000000",
            "made": 5,
            "raw": "\\x00ff",
            "list": [1, None, 3],
            "day": "2026-01-31",
            "clock": "23:59:59.5",
            "plain": "2026-01-31T23:59:59+01:00",
            "lasted": "1 day 02:00:00",
            "address": "2001:db8::1",
            "real": Decimal("0.1"),
        }
        results = await self.deliver({"table": f"public.{table}"}, row | {"twice": 1})
        assert isinstance(results[0], Receipt)
        kept = row | {"twice": 10, "plain": "2026-01-31T22:59:59", "word": "word"}
        assert await self.everything(f"public.{table}") == [kept]

    def disconnect_others(self) -> None:
        self.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'headrace'")


class TestMariadbOutput(Mariadb, _SqlOutputs, DeliverBatchSuite):
    large_text = "longtext"
    moment = "datetime"

    async def test_types_of_its_own_are_kept(self) -> None:
        columns = (
            "id binary(2) PRIMARY KEY, twice int AS (small * 2), raw blob, small tinyint, whole bigint unsigned, "
            "bits bit(8), bit1 bit(1), day date, clock time(6), plain datetime, choice enum('a', 'b'), real_ double, "
            "word varchar(9) DEFAULT 'word'"
        )
        table = self.table(columns)
        row = {
            "id": "\\x00ff",
            "raw": "\\x275c",
            "small": 7,
            "whole": 2**64 - 1,
            "bits": 5,
            "bit1": True,
            "day": "2026-01-31",
            "clock": "-23:59:59.500000",
            "plain": "2026-01-31T23:59:59+01:00",
            "choice": "b",
            "real_": Decimal("0.1"),
        }
        results = await self.deliver({"table": f"{mariadb.DATABASE}.{table}"}, row | {"twice": 1})
        assert isinstance(results[0], Receipt)
        kept = row | {"twice": 14, "plain": "2026-01-31T22:59:59", "word": "word"}
        assert await self.everything(table) == [kept]
        options = {"source": {"type": "table", "table": table}, "mode": {"type": "bulk"}}
        records, breakpoint = await read(self.connection(), options, batches=1)
        assert records[0].key == b"\\x00ff"
        assert (await read(self.connection(), options, breakpoint))[0] == []

    async def test_a_batch_larger_than_a_packet_is_still_one_transaction(self) -> None:
        table = self.table("id bigint PRIMARY KEY, text longtext NOT NULL")
        quotes = [{"id": number, "text": "'" * 900_000} for number in range(12)]
        client = self.client(self.connection(), {"table": table})
        with pytest.raises(BatchRefusedError):
            await client.deliver_batch([message(exact.dumps(row)) for row in [*quotes, {"id": 99, "text": None}]])
        assert self.run(f"SELECT count(*) FROM {table}") == [(0,)]
        await client.deliver_batch([message(exact.dumps(row)) for row in quotes])
        await client.close()
        assert self.run(f"SELECT count(*), min(length(text)) FROM {table}") == [(12, 900_000)]

    def disconnect_others(self) -> None:
        for (number,) in self.run("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID()"):
            self.run(f"KILL {number}")
