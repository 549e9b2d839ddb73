"""The databases that the JDBC connector is tested against, and its reader as tests use it."""

from collections.abc import Sequence
from typing import Any

from backend.domain import json
from backend.domain.capabilities import Batch
from tests.infra import PASSWORD, POSTGRESQL_PORT
from tests.integration.connectors.suites import input_reader, opened
from tests.jdbc import H2_PASSWORD, H2_URL, H2_USER

H2 = {"url": H2_URL, "user": H2_USER, "password": H2_PASSWORD}


def postgresql(port: int = POSTGRESQL_PORT, **fields: str) -> dict[str, Any]:
    return {"url": f"jdbc:postgresql://127.0.0.1:{port}/postgres", "user": "headrace", "password": PASSWORD, **fields}


def of_table(table: str, mode: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {"source": {"type": "table", "table": table}, "mode": mode, **options}


async def read(connection: dict[str, Any], options: dict[str, Any], breakpoint: Any = None) -> list[Batch]:
    async with opened(input_reader("jdbc", connection, options)) as reader:
        return [batch async for batch in reader.read(json.loads(json.dumps(breakpoint)))]


def documents(batches: Sequence[Batch]) -> list[dict[str, Any]]:
    return [json.loads(record.body) for batch in batches for record in batch.records]


async def everything(connection: dict[str, Any], table: str) -> list[dict[str, Any]]:
    return documents(await read(connection, of_table(table, {"type": "bulk"})))
