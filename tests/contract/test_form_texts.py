"""Every text that a form shows is in the catalogue of each language that the console has beside English."""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.domain.connector import connectors
from backend.domain.pipeline import PipelineConfig
from backend.domain.transforms.base import transforms
from backend.runtime.new_connector import stand_in_texts
from backend.settings import ROOT

CATALOGUES = sorted((ROOT / "frontend" / "src" / "locales").glob("forms.*.json"))

# GET, PLAIN or SCRAM-SHA-256 is the same in every language.
IDENTIFIER = re.compile(r"[A-Z0-9]+(-[A-Z0-9]+)*")

# Keywords that hold schemas by names, which may be those of keywords, and keywords that hold values.
NAMED = {"properties", "patternProperties", "$defs"}
VALUES = {"const", "default", "discriminator", "examples", "required"}


def texts_in(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for part in schema:
            yield from texts_in(part)
    elif isinstance(schema, dict):
        for keyword, value in schema.items():
            if keyword in {"title", "description"}:
                yield value.strip()
            elif keyword == "enum":
                yield from map(str, value)
            elif keyword not in VALUES:
                yield from texts_in(list(value.values()) if keyword in NAMED else value)


def is_plugin(component: type) -> bool:
    return not Path(inspect.getfile(component)).is_relative_to(ROOT / "backend")


def form_texts() -> set[str]:
    """Of the configuration of pipelines and of connectors; components of the tests have no translations."""
    pipeline = PipelineConfig.model_json_schema()
    for transform in filter(is_plugin, transforms):
        del pipeline["$defs"][transform.__name__]
    texts = set(texts_in(pipeline))
    for connector in connectors:
        if is_plugin(connector):
            continue
        texts |= {connector.title, connector.description()}
        texts |= set(texts_in(connector.connection_model.model_json_schema()))
        for capability in connector.capabilities:
            options = capability.options_model.model_json_schema()
            if options["properties"]:  # a form shows nothing of options without fields
                texts |= set(texts_in(options))
    return {text for text in texts if not IDENTIFIER.fullmatch(text)}


def test_there_are_texts_and_catalogues() -> None:
    assert "Pipeline config" in form_texts()
    assert CATALOGUES


@pytest.mark.parametrize("catalogue", CATALOGUES, ids=lambda path: path.stem)
def test_every_text_of_a_form_is_translated(catalogue: Path) -> None:
    translated = json.loads(catalogue.read_text())
    missing = sorted(text for text in form_texts() if not translated.get(text))
    assert not missing, f"{catalogue.relative_to(ROOT)} needs a translation of each of these: {missing}"


@pytest.mark.parametrize("catalogue", CATALOGUES, ids=lambda path: path.stem)
def test_no_text_is_left_of_the_stand_in_that_a_connector_was_written_with(catalogue: Path) -> None:
    translated = json.loads(catalogue.read_text()).keys()
    texts = {text for connector in connectors if not is_plugin(connector) for text in stand_in_texts(connector.type)}
    left = sorted(texts & translated - form_texts())
    assert not left, f"Remove each of these from {catalogue.relative_to(ROOT)}, since no form shows it: {left}"
