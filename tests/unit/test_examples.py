import json
from typing import Any

import pytest

from backend.domain.examples import Example, check_examples
from backend.domain.pipeline import PipelineConfig
from backend.domain.suggestions import Field, fields_of

CONNECTOR = "0199d1a0-0000-7000-8000-000000000000"
STEPS: list[dict[str, Any]] = [
    {"type": "drop_unless", "path": "keep", "condition": "equals", "value": True},
    {
        "type": "call",
        "name": "names",
        "connector": CONNECTOR,
        "options": {"path": "/{{id}}"},
        "mapping": {"name": "n"},
    },
    {"type": "uuid", "path": "uuid"},
]


def check(steps: list[dict[str, Any]], **example: Any) -> str:
    example = {"name": "e", "input": '{"keep":true,"id":1}', "answers": {"names": {"n": "Ana"}}} | example
    output = {"name": "out", "connector": CONNECTOR}
    config = PipelineConfig.model_validate({"transforms": steps, "outputs": [output], "examples": [example]})
    [failure] = check_examples(config.transforms, config.examples)
    return failure


def test_an_example_holds_or_says_what_is_different() -> None:
    good = {"outputs": ['{"name": "Ana", "id": 1, "keep": true}'], "ignored": ["uuid"]}
    assert check(STEPS, **good) == ""
    changed = [STEPS[0], STEPS[1] | {"mapping": {"called": "n"}}, STEPS[2]]
    assert check(changed, **good) == 'Message 1: name is missing instead of "Ana"; called is "Ana" instead of missing.'
    assert check(STEPS, outputs=good["outputs"]).startswith("Message 1: uuid is ")
    assert check(STEPS, outputs=[]) == "It results in 1 messages instead of 0."


def test_dropping_and_refusing_may_be_what_is_expected() -> None:
    assert check(STEPS, input='{"keep":false}') == ""
    assert check(STEPS, answers={}, error="Step 2 (call): The example has no response") == ""
    assert check(STEPS, error="Step 2") == "It is no longer rejected."
    assert check(STEPS, input="{").startswith("It is rejected: The body is not JSON")


def test_an_answer_stays_as_it_was_recorded() -> None:
    steps = [STEPS[1] | {"mapping": {}, "to": "a"}, {"type": "set", "path": "a.n", "value": 1}]
    example = {"name": "e", "input": "{}", "answers": {"names": {"n": 0}}, "outputs": ['{"a":{"n":1}}']}
    steps[0]["options"] = {}
    examples = [Example.model_validate(example | {"name": name}) for name in "ab"]
    transforms = PipelineConfig.model_validate(
        {"transforms": steps, "outputs": [{"name": "out", "connector": CONNECTOR}]}
    ).transforms
    assert check_examples(transforms, examples) == ["", ""]


@pytest.mark.parametrize("names", [["a", "a"]])
def test_examples_and_calls_have_names_of_their_own(names: list[str]) -> None:
    config: dict[str, Any] = {"outputs": [{"name": "out", "connector": CONNECTOR}]}
    examples = [{"name": name, "input": "{}"} for name in names]
    with pytest.raises(ValueError, match="Each example needs a name of its own"):
        PipelineConfig.model_validate(config | {"examples": examples})
    calls = [STEPS[1] | {"name": name} for name in names]
    with pytest.raises(ValueError, match="Each API call needs a name of its own"):
        PipelineConfig.model_validate(config | {"transforms": calls})


def test_fields_are_suggested_by_their_paths() -> None:
    bodies = [json.dumps({"a": {"b": [{"c": 1}]}, "x.y": None}).encode(), b"not json", b'{"a": 1, "d": "t"}']
    assert fields_of(bodies) == [
        Field("a", "object", '{"b":[{"c":1}]}'),
        Field("a.b", "list", '[{"c":1}]'),
        Field("a.b.0", "object", '{"c":1}'),
        Field("a.b.0.c", "number", "1"),
        Field("/x.y", "null", "null"),
        Field("d", "string", '"t"'),
    ]
