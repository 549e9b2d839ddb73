"""Rows that INSERT INTO … VALUES writes."""

import base64
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from backend.apps.sql.errors import SqlError
from backend.domain import json
from backend.domain.connect_sql import expressions as e
from backend.domain.connect_sql import statements as s
from backend.domain.connect_sql import types as t
from backend.domain.connect_sql.printer import type_name
from backend.domain.connect_sql.sources import Source
from backend.kafka.client.blocking_producer import BlockingProducer
from backend.settings import platform_settings


def row_insert(source: Source, statement: s.InsertValues) -> None:
    """Raises SqlError."""
    if source.value_format != "JSON":
        raise SqlError("Rows can be inserted into streams and tables whose value_format is JSON.", status=501)
    if source.window:
        raise SqlError("Rows cannot be inserted into a table with windows.")
    columns = statement.columns or tuple(column.name for column in source.columns)
    if len(columns) != len(statement.values):
        raise SqlError(f"There are {len(columns)} columns and {len(statement.values)} values.")
    known = {column.name.lower(): column for column in source.columns}
    values: dict[str, Any] = {}
    for name, expression in zip(columns, statement.values, strict=True):
        column = known.get(name.lower())
        if column is None:
            raise SqlError(f"{source.name} has no column {name}.")
        values[column.name] = _value(expression, column)
    if source.kind is s.Kind.TABLE and any(values.get(key.name) is None for key in source.keys):
        raise SqlError("A row of a table needs its key.")
    value = json.dumps({column.name: values.get(column.name) for column in source.values})
    _produce(source.topic, _key(source, values), value)


def _value(expression: e.Expression, column: s.ColumnDefinition) -> Any:
    """As it is stored in JSON. Raises SqlError."""
    match expression:
        case e.Literal(value=value):
            pass
        case e.Minus(operand=e.Literal(value=int() | float() | Decimal() as number)):
            value = -number
        case _:
            raise SqlError(f"The value of {column.name} has to be a constant.")
    if value is None:
        return None
    try:
        return _stored(value, column.type)
    except (TypeError, ValueError):
        raise SqlError(f"The value of {column.name} is no {type_name(column.type)}.") from None


def _stored(value: Any, type: e.Type) -> Any:
    is_number = isinstance(value, int | Decimal | float) and not isinstance(value, bool)
    match type:
        case t.VARCHAR if isinstance(value, str):
            return value
        case t.BOOLEAN if isinstance(value, bool):
            return value
        case t.INTEGER | t.BIGINT if isinstance(value, int) and is_number:
            if abs(value) < 2 ** (31 if type == t.INTEGER else 63):
                return value
        case t.DOUBLE | e.DecimalType() if is_number:
            return value
        case t.TIMESTAMP if isinstance(value, str):
            return round(datetime.fromisoformat(value if "+" in value[10:] else f"{value}+00:00").timestamp() * 1000)
        case t.DATE if isinstance(value, str):
            return (date.fromisoformat(value) - date(1970, 1, 1)).days
        case t.BYTES if isinstance(value, str):
            return base64.b64encode(value.encode()).decode()
    raise TypeError


def _key(source: Source, values: dict[str, Any]) -> bytes | None:
    keys = {key.name: values.get(key.name) for key in source.keys}
    if not keys or (len(keys) == 1 and None in keys.values()):
        return None
    if source.key_format == "JSON":
        return json.dumps(keys if len(keys) > 1 else next(iter(keys.values())))
    [value] = keys.values()
    assert value is not None
    if isinstance(value, str):
        return value.encode()
    size = 4 if source.keys[0].type == t.INTEGER else 8
    return int(value).to_bytes(size, "big", signed=True)


def _produce(topic: str, key: bytes | None, value: bytes) -> None:
    answers: list[KafkaError | None] = []
    producer = _producer()
    try:
        producer.send(topic, key=key, value=value, on_delivery=lambda error, _: answers.append(error))
        producer.flush()
    except KafkaException as error:
        raise SqlError(f"Kafka did not take the row: {error.args[0].str()}.", status=502) from None
    if not answers:
        raise SqlError("Kafka did not take the row: it does not answer.", status=502)
    if (refusal := answers[0]) is not None:
        raise SqlError(f"Kafka did not take the row: {refusal.str()}.", status=502)


@lru_cache
def _producer() -> BlockingProducer:
    return BlockingProducer(platform_settings().kafka.client())
