"""Generates the reference page of every connector type from its declaration: ``make docs``."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backend.domain.connector import Connector, connectors


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.md"):
        old.unlink()
    for connector in connectors:
        (folder / f"{connector.type}.md").write_text(page(connector))


def page(connector: type[Connector]) -> str:
    """The connector's page in Markdown."""
    parts = [f"# {connector.title}", f"Type `{connector.type}`. {connector.description()}", "## Connection"]
    parts.append(_table(connector.connection_model.model_json_schema()))
    parts.append(f"Example:\n\n```json\n{json.dumps(connector.example, indent=2)}\n```")
    for capability in connector.capabilities:
        if capability.options_model.model_fields:
            parts += [f"## Options to {capability.purpose}", _table(capability.options_model.model_json_schema())]
        else:
            parts += [f"## It can {capability.purpose}", "There are no options."]
    return "\n\n".join(parts) + "\n"


def _table(schema: dict[str, Any]) -> str:
    rows = [f"| `{path}` | {required} | {text} |" for path, required, text in _fields(schema, schema, "")]
    return "\n".join(["| field | required | meaning |", "|---|---|---|", *rows])


def _fields(root: dict[str, Any], schema: dict[str, Any], prefix: str) -> Iterator[tuple[str, str, str]]:
    for name, field in schema.get("properties", {}).items():
        required = "yes" if name in schema.get("required", ()) else ""
        secret = " Secret." if '"writeOnly": true' in json.dumps(field) else ""
        yield prefix + name, required, field.get("description", f"Always `{field.get('const')}`.") + secret
        for variant in field.get("oneOf", ()):
            resolved = root["$defs"][variant["$ref"].rsplit("/", 1)[1]]
            yield from _fields(root, resolved, f"{prefix}{name}.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
