"""Every sentence with which code rejects what a user entered, or says how a pipeline is, is in the catalogue of each
language beside English."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.settings import ROOT
from tests.contract.sources import trees_in
from tests.contract.test_form_texts import CATALOGUES

SAID_BY = {"ValueError", "CheckFailedError", "ConflictError", "ConfigError", "Finding"}
FOLDERS = ["backend/connectors", "backend/domain", "backend/apps"]
# What a process or a programmer reads, not a user.
INTERNAL = {
    "backend/domain/registry.py",
    "backend/domain/stages/__init__.py",
    "backend/apps/exports/staging.py",
    "backend/apps/manager/grpc.py",
    "backend/apps/manager/leases.py",
    "backend/connectors/parts/pgoutput.py",
}
VALUE = "{{}}"
SENTENCE = re.compile(r"([A-Z]|{{}}).*", re.DOTALL)
"""Others are parts of a sentence."""


def sentences_in(tree: ast.Module) -> Iterator[str]:
    """With ``{{}}`` in place of each value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SAID_BY and node.args:
            for text in map(_text, _texts(node.args[0])):
                if SENTENCE.fullmatch(text) and text != VALUE:
                    yield text


def _texts(argument: ast.expr) -> list[ast.expr]:
    """Those of a ConfigError are lists by field."""
    if isinstance(argument, ast.Dict):
        return [text for value in argument.values for text in _texts(value)]
    return argument.elts if isinstance(argument, ast.List) else [argument]


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    return str(node.value) if isinstance(node, ast.Constant) else VALUE


def messages() -> dict[str, Path]:
    """With a file that has it."""
    return {
        text: path
        for folder in FOLDERS
        for path, tree in trees_in(folder).items()
        if "management" not in path.parts and str(path) not in INTERNAL
        for text in sentences_in(tree)
    }


EXAMPLE = ast.parse("""
raise ValueError(f"At most {most:g} items, not {len(items)}.") from None
raise CheckFailedError("No answer.", field="host")
raise ConfigError({"name": [f"{name!r} is taken.", str(error)], "type": ["It is unknown."]})
raise ConflictError(text)
raise ValueError("part of a sentence")
""")


def test_messages_are_collected_from_every_kind_of_rejection() -> None:
    expected = {"At most {{}} items, not {{}}.", "No answer.", "{{}} is taken.", "It is unknown."}
    assert set(sentences_in(EXAMPLE)) == expected


@pytest.mark.parametrize("catalogue", CATALOGUES, ids=lambda path: path.stem)
def test_every_message_is_translated(catalogue: Path) -> None:
    translated = {re.sub(r"{{\w+}}", VALUE, english) for english in json.loads(catalogue.read_text())}
    missing = [f"{path}: {text}" for text, path in messages().items() if text not in translated]
    assert not missing, f"{catalogue.relative_to(ROOT)} needs a translation of each of these: {missing}"
