from typing import Any

import pytest
from pydantic import ValidationError

from backend.domain.errors import ConfigError, error_sentence
from backend.domain.pipeline import PipelineConfig

CONNECTOR = "0198a7e5-0000-7000-8000-000000000000"


def errors_of(config: dict[str, Any]) -> dict[str, list[str]]:
    with pytest.raises(ValidationError) as refused:
        PipelineConfig.model_validate(config)
    return ConfigError.of(refused.value, config, "config").errors


def test_paths_name_the_users_fields_and_not_the_chosen_variant() -> None:
    errors = errors_of({"transforms": [{"type": "set", "path": "a..b", "value": 1}], "outputs": [{}]})
    assert set(errors) == {"config.transforms.0.path", "config.outputs.0.name", "config.outputs.0.connector"}
    assert errors["config.outputs.0.name"] == ["This field is required."]


def test_unknown_keys_are_named() -> None:
    errors = errors_of({"outputs": [{"name": "a", "connector": CONNECTOR, "retires": 1}]})
    assert errors == {"config.outputs.0.retires": ["Unknown field: remove it, or check its spelling."]}


def test_a_rule_over_several_fields_is_told_at_the_object() -> None:
    errors = errors_of({"transforms": [{"type": "rename", "path": "a", "to": "a"}], "outputs": []})
    assert errors["config.transforms.0"] == ["A field cannot be moved onto or into itself: choose another path."]
    assert "config.outputs" in errors


def test_output_names_must_differ() -> None:
    output = {"name": "a", "connector": CONNECTOR}
    assert "repeated: a" in errors_of({"outputs": [output, output]})["config.outputs"][0]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError("No  driver.\nInstall it."), "OSError: No driver. Install it."),
        (OSError(), "OSError."),
        (OSError("a" * 400), f"OSError: {'a' * 300}…."),
        (OSError("a" * 298 + "t0p-secret"), f"OSError: {'a' * 298}**…."),
    ],
)
def test_an_exception_that_nobody_foresaw_becomes_a_sentence(error: Exception, sentence: str) -> None:
    assert error_sentence(error, ["t0p-secret"]) == sentence
