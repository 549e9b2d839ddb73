"""The pages of the documentation's site that are generated from the models and exist there only."""

import json
from typing import Any, get_args

from backend.domain.filters.conditions import Condition
from backend.domain.reasons import Reason
from backend.domain.transforms.base import Transform, TransformError, WaitingTransform, transforms
from backend.domain.transforms.chain import Chain
from backend.domain.transforms.decode import Decode
from backend.runtime.reference import description, fields_table
from backend.settings import ROOT

KINDS: dict[str, Any] = {
    "an object": {"x": 1},
    "a list": [1, 2],
    "a text": "text",
    "a number": 3,
    "true": True,
    "null": None,
}
_LABELS = ROOT / "frontend/src/locales/en.json"


def steps_page() -> str:
    """The page of all transforms in Markdown."""
    parts = [
        "# Steps",
        "The steps of a pipeline, by their `type`. [Pipelines](../guides/pipelines.md) says how they run.",
        "What each makes, as in its example, of messages of another kind and of an object without the fields that it "
        "names:",
        _outcomes_table(),
    ]
    for step in transforms:
        example = json.dumps(step.example, indent=2, ensure_ascii=False)
        parts += [f"## {step.example['type']}", description(step), f"```json\n{example}\n```"]
        parts.append(fields_table(step.model_json_schema()))
    return "\n\n".join(parts) + "\n"


def outcome(step: type[Transform], document: Any) -> str:
    """What the step, as in its example, makes of a document that lacks the fields it names."""
    chain = Chain([step.model_validate(step.example)])
    try:
        results = chain.run(json.dumps(document).encode())
    except TransformError:
        return "refused"
    if not results:
        return "dropped"
    body = results[0].body.decode()
    return "unchanged" if body == json.dumps(document, separators=(",", ":")) else f"`{body}`"


def _outcomes_table() -> str:
    rows = [
        f"| [{step.example['type']}](#{step.example['type']}) | "
        + " | ".join(outcome(step, document) for document in KINDS.values())
        + " |"
        for step in transforms
        if not issubclass(step, WaitingTransform) and step is not Decode
    ]
    return "\n".join([f"| step | {' | '.join(KINDS)} |", f"|---{'|---' * len(KINDS)}|", *rows])


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
