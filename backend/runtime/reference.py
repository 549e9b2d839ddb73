"""Generates the reference pages of connector types, of settings and of what survives from declarations:
``make reference``."""

import argparse
import ast
import inspect
import itertools
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from backend.domain.connector import Connector, connectors
from backend.runtime.survival import survival_page
from backend.settings import ROOT, SECTIONS, variables

_SETTINGS = """# Settings

All settings are environment variables; an empty one counts as unset. A process that finds a variable which begins with
`HEADRACE_` and is none of these does not start, and says which name was probably meant. `manage.py up` sets what the
embedded installation needs."""


def main(docs: Path) -> None:
    _write_connectors(docs / "connectors")
    (docs / "operations/settings.md").write_text(settings_page())
    (docs / "reference/survival.md").write_text(survival_page())


def _write_connectors(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.md"):
        old.unlink()
    for connector in connectors:
        (folder / f"{connector.type}.md").write_text(page(connector))


def page(connector: type[Connector]) -> str:
    """The connector's page in Markdown."""
    parts = [f"# {connector.title}", f"Type `{connector.type}`. {connector.description()}", "## Connection"]
    parts.append(fields_table(connector.connection_model.model_json_schema()))
    parts.append(f"Example:\n\n```json\n{json.dumps(connector.example, indent=2)}\n```")
    for capability in connector.capabilities:
        fields = capability.options_model.model_fields
        parts += [f"## {'Options to' if fields else 'It can'} {capability.purpose}"]
        parts += [description(capability)] if capability.__doc__ else []
        parts += [fields_table(capability.options_model.model_json_schema()) if fields else "There are no options."]
    return "\n\n".join(parts) + "\n"


def description(model: type) -> str:
    """Its docstring as a paragraph of Markdown."""
    return inspect.cleandoc(model.__doc__ or "")


def attribute_docstrings(model: type) -> dict[str, str]:
    """The texts below the fields of a class, by field. Pydantic reads them as well, in every process that starts."""
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: str(text.value.value)
        for field, text in itertools.pairwise(definition.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


def settings_page() -> str:
    """The page of all settings in Markdown."""
    parts = [_SETTINGS]
    for title, section in SECTIONS.items():
        prefix, meanings = section.model_config["env_prefix"], attribute_docstrings(section)
        rows = [
            f"| `{name}` | {_default(field.get_default(call_default_factory=True))} "
            f"| {_line(meanings.get(name.removeprefix(prefix).lower()))} |"
            for name, field in variables(section).items()
        ]
        table = "\n".join(["| variable | default | meaning |", "|---|---|---|", *rows])
        parts += [f"## {title}", _line(section.__doc__), table]
    return "\n\n".join(parts) + "\n"


def _line(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _default(value: Any) -> str:
    if isinstance(value, BaseModel):
        return f"`{value.model_dump_json(exclude_none=True)}`"
    if isinstance(value, SecretStr) or value in ("", {}):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`".replace(f"{ROOT}/", "")


def fields_table(schema: dict[str, Any]) -> str:
    """The fields of a model's JSON Schema, also of what it contains, as a table in Markdown."""
    rows = [f"| `{path}` | {required} | {text} |" for path, required, text in _fields(schema, schema, "")]
    return "\n".join(["| field | required | meaning |", "|---|---|---|", *rows])


def _fields(root: dict[str, Any], schema: dict[str, Any], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, field in schema.get("properties", {}).items():
        required = "yes" if name in schema.get("required", ()) else ""
        secret = " Secret." if '"writeOnly": true' in json.dumps(field) else ""
        same = " Changing it does not start reading anew." if field.get("same_source") else ""
        yield prefix + name, required, field.get("description", f"Always `{field.get('const')}`.") + secret + same
        for variant in field.get("oneOf", ()):
            resolved = root["$defs"][variant["$ref"].rsplit("/", 1)[1]]
            yield from _fields(root, resolved, f"{prefix}{name}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Generates the reference pages.")
    parser.add_argument("docs", type=Path, help="the folder of the documentation")
    main(parser.parse_args().docs)
