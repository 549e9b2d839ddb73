"""Every reason has a label in every language of the console."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.domain.reasons import Reason
from backend.settings import ROOT
from tests.contract.sources import trees_in

CATALOGUES = sorted(
    path for path in (ROOT / "frontend/src/locales").glob("*.json") if not path.name.startswith("forms.")
)
every_catalogue = pytest.mark.parametrize("catalogue", CATALOGUES, ids=lambda path: path.stem)


def reasons_in(tree: ast.Module) -> Iterator[str]:
    """The reasons that a connector's code writes out; of an f-string, the text before the first value."""
    for node in ast.walk(tree):
        written: list[ast.expr | None] = []
        if isinstance(node, ast.Call):
            written += [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
            if isinstance(node.func, ast.Attribute) and node.func.attr == "at":  # the field comes first
                written += node.args[1:2]
            elif any(keyword.arg == "retryable" for keyword in node.keywords):
                written += node.args[:1]
        elif isinstance(node, ast.arguments):
            named = [*node.posonlyargs, *node.args][-len(node.defaults) :] if node.defaults else []
            pairs = [*zip(named, node.defaults, strict=True), *zip(node.kwonlyargs, node.kw_defaults, strict=True)]
            written += [default for argument, default in pairs if argument.arg == "reason"]
        for value in written:
            part = value.values[0] if isinstance(value, ast.JoinedStr) else value
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value


def connector_reasons() -> dict[str, Path]:
    """With a file that has it."""
    return {reason: path for path, tree in trees_in("backend/connectors").items() for reason in reasons_in(tree)}


EXAMPLE = ast.parse("""
def failed(text, reason="sql_value", *, kind="other"):
    raise DeliveryError("redis_rejected", text, retryable=False)
refused(f"pubsub_{code}", "No.", retryable=False)
error(text, reason="kafka_timeout")
other("no reason", 1)
DeliveryError(Reason.DNS, "No.", retryable=True)
""")


def test_reasons_are_collected_wherever_connectors_write_them() -> None:
    assert set(reasons_in(EXAMPLE)) == {"sql_value", "redis_rejected", "pubsub_", "kafka_timeout"}
    assert {"http_", "sql_"} <= connector_reasons().keys()


def test_there_are_catalogues() -> None:
    assert {"en", "pt-BR"} <= {path.stem for path in CATALOGUES}


@every_catalogue
def test_every_reason_of_headrace_has_a_label(catalogue: Path) -> None:
    labels = json.loads(catalogue.read_text())["reasons"]
    assert {str(reason) for reason in Reason} <= labels.keys()


@every_catalogue
def test_every_reason_of_a_connector_has_a_label(catalogue: Path) -> None:
    texts = json.loads(catalogue.read_text())
    missing = [
        f"{path}: {catalogue.name} needs {reason!r} in 'reasons', or {reason.partition('_')[0]!r} in 'answers'"
        for reason, path in connector_reasons().items()
        if reason not in texts["reasons"] and reason.partition("_")[0] not in texts["answers"]
    ]
    assert missing == []
