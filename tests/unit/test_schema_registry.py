"""Records in Avro whose schema the registry does not know, or cannot give now. The registry's answers are made up."""

import json
import struct
from typing import Any

import pytest
import requests

from backend.domain.avro.schema import AvroSchema, SchemaError
from backend.domain.connect_sql.avro import to_json
from backend.network import schema_registry
from backend.network.schema_registry import SchemaRegistry
from backend.settings import Settings

RECORD = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}
UNKNOWN = (404, {"error_code": 40403, "message": "Schema 7 not found"})


def response(status: int, body: Any) -> requests.Response:
    made = requests.Response()
    made.status_code = status
    made._content = (body if isinstance(body, str) else json.dumps(body)).encode()
    return made


class Answers:
    """What the registry answers; ``asked`` counts its requests."""

    def __init__(self) -> None:
        self.asked = 0
        self.now: tuple[int, Any] = UNKNOWN

    def get(self, url: str, **_: Any) -> requests.Response:
        assert url.endswith("/schemas/ids/7")
        self.asked += 1
        return response(*self.now)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    made = Answers()
    monkeypatch.setattr(requests, "get", made.get)
    return made


@pytest.fixture
def registry(answers: Answers) -> SchemaRegistry:
    return SchemaRegistry(Settings(schema_registry_url="http://registry.example.com"))


ROW = struct.pack(">bI", 0, 7) + AvroSchema(RECORD).write({"a": 3})


def test_neighbours_4_a_record_of_an_unknown_schema_cannot_be_read(answers: Answers, registry: SchemaRegistry) -> None:
    read = to_json(registry.schema)
    assert [read(ROW) for _ in range(100)] == ["no Avro"] * 100
    assert answers.asked == 1
    with pytest.raises(SchemaError, match=r"has no schema with the id 7\."):
        registry.schema(7)


def test_neighbours_4_a_schema_that_is_registered_later_is_read(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_registry, "_REFUSED_SECONDS", 0.0)
    read = to_json(SchemaRegistry(Settings(schema_registry_url="http://registry.example.com")).schema)
    assert read(ROW) == "no Avro"
    answers.now = (200, {"schema": json.dumps(RECORD)})
    assert [read(ROW) for _ in range(100)] == ['{"a":3}'] * 100
    assert answers.asked == 2


@pytest.mark.parametrize(
    "answer",
    [
        (500, {"error_code": 50001}),
        (503, "unavailable"),
        (401, {"error_code": 401}),
        (404, "no such page"),
        (404, {"error_code": 404}),
        (404, []),
        (200, "no JSON"),
    ],
    ids=str,
)
def test_neighbours_4_a_registry_that_cannot_answer_is_asked_again(
    answers: Answers, registry: SchemaRegistry, answer: tuple[int, Any]
) -> None:
    read = to_json(registry.schema)
    answers.now = answer
    with pytest.raises(requests.RequestException):
        read(ROW)
    answers.now = (200, {"schema": json.dumps(RECORD)})
    assert read(ROW) == '{"a":3}'


@pytest.mark.parametrize("text", ['syntax = "proto3";', '{"type": "object"}', '{"type": "nothing"}'])
def test_neighbours_4_a_schema_of_another_kind_cannot_be_read(
    answers: Answers, registry: SchemaRegistry, text: str
) -> None:
    answers.now = (200, {"schema": text, "schemaType": "PROTOBUF"})
    assert to_json(registry.schema)(ROW) == "no Avro"
