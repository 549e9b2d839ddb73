"""Writes a new connector that works, and its cases: ``make new-connector NAME=amazon_sqs CAPABILITY=deliver``.

Both are cut out of a model that has every capability (``tests/new_connector``): what the chosen ones do not use is left
out, and the name takes the place of the model's.
"""

import argparse
import ast
import json
import keyword
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from backend.domain.capabilities import (
    CAPABILITIES,
    Capability,
    Collect,
    Deliver,
    DeliverBatch,
    ReadBatch,
    ReadStream,
    Register,
)
from backend.domain.model import label
from backend.settings import ROOT

MODEL = ROOT / "tests/new_connector"
OFFERED = {kind.name: kind for kind in CAPABILITIES if kind is not Collect}
"""By their names. Collections are Headrace's own."""

_LONGEST_NAME = 40
_RECORDS = (Deliver, DeliverBatch, ReadBatch, ReadStream)
"""What ``Register`` prepares in the model."""
_AS_INPUT = {
    "read_batch": "records of a queue, read in batches; one read again has the same message id",
    "read_stream": "records of a queue, as they are added; acknowledged once stored",
    "verify": "requests, verified by signature",
}
_AS_OUTPUT = {
    "deliver": "a record for each message",
    "deliver_batch": "records of a batch by one request",
    "export": "files that are visible once they are complete",
}
"""What the row of the README says of the model."""

Kinds = list[type[Capability[Any, Any]]]


def write_connector(name: str, capabilities: Collection[str], root: Path) -> list[Path]:
    """The connector and its cases, which must not exist yet, and the files that name it now.

    Raises ValueError when the name is none or the capabilities do not go together, FileExistsError otherwise; nothing
    is written then.
    """
    names, kinds = _names(name), _kinds(capabilities)
    files = {
        root / f"backend/connectors/{name}.py": _connector(kinds),
        root / f"tests/integration/connectors/test_{name}.py": _cases(kinds),
    }
    for path in files:
        for taken in (path, path.with_suffix("")):  # a package of that name would be imported instead
            if taken.exists():
                raise FileExistsError(f"{taken.relative_to(root)} exists already: choose another name.")
    for path, source in files.items():
        path.write_text(_renamed(source, names))
    _tidy(list(files))
    return [*files, _add_translations(names, files, root), _add_row(names, kinds, root)]


def _names(name: str) -> dict[str, str]:
    """The new name in each form that the model's has. Raises ValueError."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or len(name) > _LONGEST_NAME:
        raise ValueError(
            f"{name!r} is not a connector's name: write it like amazon_sqs, with at most {_LONGEST_NAME} characters."
        )
    words = name.replace("_", " ")
    names = {
        "new_system": name,
        "NewSystem": words.title().replace(" ", ""),
        "New system": words[0].upper() + words[1:],
        "new system": words,
    }
    if keyword.iskeyword(name) or any(_hides(source, names) for source in (_model("connector"), _model("cases"))):
        raise ValueError(f"{name!r} already means something in a connector's code: choose another name.")
    return names


def _hides(source: str, names: dict[str, str]) -> bool:
    """Whether two different names of a module become the same."""
    bound: set[str] = set()
    for statement in ast.parse(source).body:
        bound |= _defined(statement)
        if isinstance(statement, ast.Import | ast.ImportFrom):
            bound |= {imported.asname or imported.name for imported in statement.names}
    return len({_renamed(one, names) for one in bound}) < len(bound)


def _model(part: str) -> str:
    return (MODEL / f"{part}.py").read_text()


def _kinds(capabilities: Collection[str]) -> Kinds:
    """Raises ValueError."""
    if not capabilities or not OFFERED.keys() >= set(capabilities):
        offered = "".join(f"\n  {name:14} it can {kind.purpose}" for name, kind in OFFERED.items())
        raise ValueError(f"Name one or more of these capabilities:{offered}")
    kinds = [kind for name, kind in OFFERED.items() if name in capabilities]
    if ReadBatch in kinds and ReadStream in kinds:
        raise ValueError("An input is read either in batches or as a stream: choose read_batch or read_stream.")
    if Register in kinds and not set(kinds) & set(_RECORDS):
        prepared = ", ".join(kind.name for kind in _RECORDS)
        raise ValueError(f"register prepares the uses of another capability: choose one of {prepared} as well.")
    return kinds


def _connector(kinds: Kinds) -> str:
    classes = ", ".join(f"NewSystem{kind.__name__}" for kind in kinds)
    model = re.sub(r"capabilities = \([^)]*\)", f"capabilities = ({classes},)", _model("connector"))
    return _used(model, ["NewSystem"])


def _cases(kinds: Kinds) -> str:
    return _used(_model("cases"), ["impatience", *(f"Test{kind.__name__}" for kind in kinds)])


def _used(source: str, roots: Collection[str]) -> str:
    """A module with its imports, and those of its definitions that the roots need."""
    definitions = list(_definitions(source))
    needed: set[str] = set()
    found = set(roots)
    while found:
        needed |= found
        used = {name for names, uses, _ in definitions if names & needed for name in uses}
        found = used - needed
    return "".join(text for names, _, text in definitions if not names or names & needed)


def _definitions(source: str) -> Iterator[tuple[set[str], set[str], str]]:
    """Of each statement the names that it defines, those that it uses, and its text. What defines none is needed."""
    lines = source.splitlines(keepends=True)
    body = ast.parse(source).body
    for number, statement in enumerate(body):
        # What stands before a statement belongs to it, and a text below an assignment to the assignment.
        if number and isinstance(statement, ast.Expr):
            continue
        last = statement
        if number and number + 1 < len(body) and isinstance(body[number + 1], ast.Expr):
            last = body[number + 1]
        before = body[number - 1].end_lineno if number else 0
        yield _defined(statement), _names_in(statement), "".join(lines[before : last.end_lineno])


def _defined(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        return {statement.name}
    if isinstance(statement, ast.Assign):
        return {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return set()


def _names_in(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def _renamed(text: str, names: dict[str, str]) -> str:
    return re.sub("|".join(names), lambda found: names[found[0]], text)


def _tidy(files: list[Path]) -> None:
    """Removes the imports that are not used any more, sorts the others, and formats."""
    ruff = [sys.executable, "-m", "ruff"]
    config = ["--quiet", "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    joined = ["--config", "lint.isort.split-on-trailing-comma=false"]  # fewer names may fit one line
    subprocess.run([*ruff, "check", "--fix", "--select", "F401,I", *config, *joined, *files], check=True)
    subprocess.run([*ruff, "format", *config, *files], check=True)


def _add_translations(names: dict[str, str], files: Collection[Path], root: Path) -> Path:
    """Adds the texts of the forms that the catalogue lacks."""
    catalogue = root / "frontend/src/locales/forms.pt-BR.json"
    texts: dict[str, str] = json.loads(catalogue.read_text())
    source = "".join(path.read_text() for path in files)
    for definition, translations in _translations(names).items():
        if f"class {definition}(" in source:
            for english, portuguese in translations.items():
                texts.setdefault(english, portuguese)
    catalogue.write_text(json.dumps(texts, ensure_ascii=False, indent=2) + "\n")
    return catalogue


def stand_in_texts(name: str) -> set[str]:
    """Those of its forms that a connector of that name has until they are replaced. Raises ValueError."""
    return {english for translations in _translations(_names(name)).values() for english in translations}


def _translations(names: dict[str, str]) -> dict[str, dict[str, str]]:
    """Those of the texts of the model's forms, by the definition that has them."""
    found: dict[str, dict[str, str]] = {}
    for definition, translations in json.loads((MODEL / "forms.pt-BR.json").read_text()).items():
        texts = found[_renamed(definition, names)] = {}
        for english, portuguese in translations.items():
            shown = _renamed(english, names)
            texts[label(shown) if english == definition else shown] = _renamed(portuguese, names)
    return found


def _add_row(names: dict[str, str], kinds: Kinds, root: Path) -> Path:
    """Adds a row to the README's table of connectors."""
    readme = root / "README.md"
    lines = readme.read_text().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if line.startswith("| [") and "](docs/connectors/" in line)
    cells = ("; ".join(texts[kind.name] for kind in kinds if kind.name in texts) for texts in (_AS_INPUT, _AS_OUTPUT))
    row = " | ".join([f"[{names['New system']}](docs/connectors/{names['new_system']}.md)", *cells])
    lines.insert(last + 1, f"| {row} |\n".replace("|  |", "| |"))
    readme.write_text("".join(lines))
    return readme


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("name", help="such as amazon_sqs")
    parser.add_argument("capability", nargs="*", help=", ".join(OFFERED))
    arguments = parser.parse_args()
    try:
        for path in write_connector(arguments.name, arguments.capability, ROOT):
            print(path.relative_to(ROOT))
    except (ValueError, FileExistsError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
