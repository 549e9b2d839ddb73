"""Reads rows in Avro, in a Python worker of Spark: it imports no more than that needs."""

from collections.abc import Callable
from functools import cache

from backend.domain.connect_sql.avro import to_json
from backend.network.schema_registry import SchemaRegistry
from backend.settings import Settings


def avro_as_json(value: bytes | None) -> str | None:
    """As ``to_json`` of the domain, with the schemas of the registry."""
    return _reader()(value)


@cache
def _reader() -> Callable[[bytes | None], str | None]:
    """Asks the registry for each schema once."""
    return to_json(SchemaRegistry(Settings()).schema)
