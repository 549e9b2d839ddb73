"""Generates backend/kafka/wire/messages.json from the definitions in the pinned clients jar: ``make kafka-messages``.

Only the APIs that brokers offer to clients are kept, without their documentation.
"""

import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parents[1] / "kafka/wire/messages.json"

Json = dict[str, Any]


def main(jars: Path) -> None:
    TARGET.write_text(text(jars))


def text(jars: Path) -> str:
    """The content of messages.json. ``jars`` is the folder with the broker's jars."""
    lines = ",\n".join(json.dumps(message, separators=(",", ":")) for message in _messages(jars))
    return f"[\n{lines}\n]\n"


def _messages(jars: Path) -> Iterator[Json]:
    with zipfile.ZipFile(next(jars.glob("kafka-clients-*.jar"))) as jar:
        names = [name for name in jar.namelist() if re.fullmatch(r"common/message/\w+(Request|Response)\.json", name)]
        definitions = [json.loads(re.sub(r"(?m)^\s*//.*$", "", jar.read(name).decode())) for name in names]
    definitions = [definition for definition in definitions if "apiKey" in definition]
    offered = {d["apiKey"] for d in definitions if d["type"] == "request" and "broker" in d.get("listeners", ())}
    for definition in sorted(definitions, key=lambda d: (d["apiKey"], d["type"])):
        if definition["apiKey"] in offered and definition["validVersions"] != "none":
            yield _message(definition)


def _message(definition: Json) -> Json:
    shared = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", ())}
    return {
        "key": definition["apiKey"],
        "name": definition["name"],
        "versions": _range(definition["validVersions"]),
        "flexible": _range(definition["flexibleVersions"]),
        "fields": [_field(field, shared) for field in definition["fields"]],
    }


def _field(field: Json, shared: dict[str, list[Json]]) -> Json:
    kind = field["type"]
    result: Json = {"name": _snake(field["name"]), "type": kind, "versions": _range(field["versions"])}
    if "nullableVersions" in field:
        result["nullable"] = _range(field["nullableVersions"])
    if "tag" in field:
        result["tag"], result["tagged"] = field["tag"], _range(field["taggedVersions"])
    if "default" in field:
        result["default"] = field["default"]
    fields = field.get("fields") or shared.get(kind.removeprefix("[]"))
    if fields:
        result["fields"] = [_field(inner, shared) for inner in fields]
    return result


def _range(versions: str) -> list[int] | None:
    """The first and last version of ``3-13``, ``9+`` or ``4``; None for ``none``."""
    if versions == "none":
        return None
    first, _, last = versions.partition("-")
    if first.endswith("+"):
        return [int(first[:-1]), 32767]
    return [int(first), int(last or first)]


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
