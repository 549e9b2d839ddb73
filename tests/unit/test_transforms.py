from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from backend.domain import json
from backend.domain.pipeline import AnyTransform
from backend.domain.transforms.base import TransformError
from backend.domain.transforms.chain import compile_chain

cases = [
    pytest.param(case, id=f"{path.stem}-{number}")
    for path in sorted((Path(__file__).parent / "transforms").glob("*.yaml"))
    for number, case in enumerate(yaml.safe_load(path.read_text()), 1)
]
transforms = TypeAdapter(list[AnyTransform])


@pytest.mark.parametrize("case", cases)
def test_table(case: dict[str, Any]) -> None:
    run = compile_chain(transforms.validate_python(case["steps"]))
    if "error" in case:
        with pytest.raises(TransformError) as refused:
            run(case["input"].encode())
        assert str(refused.value).startswith(case["error"])
    else:
        assert [body.decode() for body in run(case["input"].encode())] == case["output"]


names = st.sampled_from(["a", "b", "0"])
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
)
paths = st.lists(names, min_size=1, max_size=3).map(".".join)
steps = st.one_of(
    st.builds(lambda path, value: {"type": "set", "path": path, "value": value}, paths, documents),
    st.builds(lambda path, to: {"type": "rename", "path": path, "to": f"z.{to}"}, paths, paths),
    st.builds(
        lambda path, value: {"type": "drop_unless", "path": path, "condition": "less_than", "value": value},
        paths,
        documents,
    ),
)


@given(st.lists(steps, max_size=4), documents)
def test_any_json_gives_documents_or_a_transform_error_and_always_the_same(
    configured: list[dict[str, Any]], document: object
) -> None:
    run = compile_chain(transforms.validate_python(configured))
    body = json.dumps(document)

    def outcome() -> object:
        try:
            return run(body)
        except TransformError as error:
            return str(error)

    assert outcome() == outcome()


@pytest.mark.parametrize(
    "step",
    [
        {"type": "rename", "path": "a", "to": "a"},
        {"type": "rename", "path": "a", "to": "a.b"},
        {"type": "drop_unless", "path": "a", "condition": "in", "value": 1},
        {"type": "set", "path": "a..b", "value": 1},
        {"type": "set", "path": "a", "valeu": 1},
        {"type": "unknown"},
    ],
)
def test_senseless_steps_are_refused(step: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        transforms.validate_python([step])
