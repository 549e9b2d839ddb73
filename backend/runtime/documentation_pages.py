"""The pages of the documentation's site that are generated from the models and exist there only."""

import json
from typing import get_args

from backend.domain.filters.conditions import Condition
from backend.domain.reasons import Reason
from backend.domain.transforms.base import transforms
from backend.runtime.reference import description, fields_table
from backend.settings import ROOT

_LABELS = ROOT / "frontend/src/locales/en.json"


def steps_page() -> str:
    """The page of all transforms in Markdown."""
    parts = [
        "# Steps",
        "The steps of a pipeline, by their `type`. [Pipelines](../guides/pipelines.md) says how they run.",
    ]
    for step in transforms:
        example = json.dumps(step.example, indent=2, ensure_ascii=False)
        parts += [f"## {step.example['type']}", description(step), f"```json\n{example}\n```"]
        parts.append(fields_table(step.model_json_schema()))
    return "\n\n".join(parts) + "\n"


def conditions_page() -> str:
    """The page of all conditions of filters in Markdown."""
    parts = ["# Conditions", "What filters ask of [indexed fields](../guides/pipelines.md#filters), by their `type`."]
    for condition in get_args(get_args(Condition)[0]):
        kind = condition.model_fields["type"]
        names = ", ".join(get_args(kind.annotation))
        parts += [f"## {names}", description(condition), fields_table(condition.model_json_schema())]
    return "\n\n".join(parts) + "\n"


def reasons_page() -> str:
    """The page of all reasons of dead letters and attempts in Markdown."""
    labels = json.loads(_LABELS.read_text())
    answers = {f"{system}_CODE": label.replace("{{code}}", "CODE") for system, label in labels["answers"].items()}
    own = {str(reason): labels["reasons"][reason] for reason in Reason}
    return (
        "\n\n".join(
            [
                "# Reasons",
                "Why a message was not delivered: what the console shows, and the word by which the REST API, metrics "
                "and logs name it. [Failures](../guides/failures.md) says which of them are tried again.",
                "## Headrace's own",
                _reasons_table(own),
                "## Answers of other systems",
                _reasons_table(answers),
            ]
        )
        + "\n"
    )


def _reasons_table(labels: dict[str, str]) -> str:
    rows = [f"| `{word}` | {label} |" for word, label in labels.items()]
    return "\n".join(["| reason | meaning |", "|---|---|", *rows])
