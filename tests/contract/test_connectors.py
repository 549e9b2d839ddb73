"""What every connector and every transform must fulfil, found through the registries."""

import inspect
from typing import Any

import pytest
from pydantic import BaseModel

from backend.domain.connector import Connector, connectors
from backend.domain.transforms.base import Transform, transforms
from backend.domain.transforms.chain import Chain

every_connector = pytest.mark.parametrize("connector", list(connectors), ids=lambda c: c.type)
every_transform = pytest.mark.parametrize("transform", list(transforms), ids=lambda t: t.__name__)


def models_of(connector: type[Connector]) -> list[type[BaseModel]]:
    return [connector.connection_model, *(capability.options_model for capability in connector.capabilities)]


def described_fields(schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    objects = [schema, *schema.get("$defs", {}).values()]
    return [(name, field) for node in objects for name, field in node.get("properties", {}).items()]


def test_there_are_connectors_and_transforms() -> None:
    assert {c.type for c in connectors} >= {"http", "kafka"}
    assert len(list(transforms)) >= 3


@every_connector
def test_is_described(connector: type[Connector]) -> None:
    assert connector.title
    assert connector.description().endswith(".")
    for model in models_of(connector):
        for name, field in described_fields(model.model_json_schema()):
            if "const" not in field:
                assert field.get("description", "").endswith("."), f"{model.__name__}.{name} needs a description"


@every_connector
def test_example_is_valid(connector: type[Connector]) -> None:
    connector.connection_model.model_validate(connector.example)


@every_connector
def test_refuses_unknown_fields(connector: type[Connector]) -> None:
    for model in models_of(connector):
        assert model.model_config.get("extra") == "forbid"


@every_connector
def test_check_is_a_coroutine(connector: type[Connector]) -> None:
    assert inspect.iscoroutinefunction(connector.check)


@every_transform
def test_transform_is_described_and_its_example_compiles(transform: type[Transform]) -> None:
    assert inspect.getdoc(transform).endswith(".")  # type: ignore[union-attr]
    for name, field in transform.model_json_schema()["properties"].items():
        assert name == "type" or field.get("description", "").endswith("."), name
    assert Chain([transform.model_validate(transform.example)])
