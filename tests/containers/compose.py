"""What ``docker/compose.yaml`` says, with the rules of Compose that it uses."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_VARIABLE = re.compile(r"\$\{(\w+)(?::([?-])([^}]*))?\}")


@dataclass(frozen=True)
class Mount:
    """``source`` is a volume's name."""

    source: str
    target: str
    read_only: bool


@dataclass(frozen=True)
class Service:
    """``waits_for`` has the condition of each service that starts before."""

    name: str
    image: str
    entrypoint: list[str]
    command: list[str]
    environment: dict[str, str]
    mounts: list[Mount]
    tmpfs: list[str]
    read_only: bool
    waits_for: dict[str, str]
    health: list[str]
    restart: str
    published: dict[int, int]


def services(file: Path, variables: dict[str, str], profiles: set[str]) -> dict[str, Service]:
    """The services that start, in their order. ``file`` lies beside the files that it names."""
    document = yaml.safe_load(file.read_text())
    chosen = {
        name: _service(name, definition, variables, file.parent)
        for name, definition in document["services"].items()
        if not definition.get("profiles") or profiles.intersection(definition["profiles"])
    }
    volumes = set(document["volumes"])
    unknown = {mount.source for service in chosen.values() for mount in service.mounts} - volumes
    assert not unknown, f"These volumes are not declared: {unknown}."
    return _ordered(chosen)


def env_file(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def _ordered(services: dict[str, Service]) -> dict[str, Service]:
    ordered: dict[str, Service] = {}
    while len(ordered) < len(services):
        due = [s for s in services.values() if s.name not in ordered and s.waits_for.keys() <= ordered.keys()]
        assert due, "The services wait for each other."
        ordered |= {service.name: service for service in due}
    return ordered


def _service(name: str, definition: dict[str, Any], variables: dict[str, str], folder: Path) -> Service:
    environment: dict[str, str] = {}
    for file in definition.get("env_file", ()):
        path = folder / file["path"]
        if file.get("required", True) or path.exists():
            environment |= env_file(path)
    environment |= {key: _interpolated(value, variables) for key, value in definition.get("environment", {}).items()}
    published = [port.rsplit(":", 2)[-2:] for port in definition.get("ports", ())]
    return Service(
        name=name,
        image=_interpolated(definition["image"], variables),
        entrypoint=definition.get("entrypoint", []),
        command=definition.get("command", []),
        environment=environment,
        mounts=[_mounted(text) for text in definition.get("volumes", ())],
        tmpfs=definition.get("tmpfs", []),
        read_only=definition.get("read_only", False),
        waits_for={other: wait["condition"] for other, wait in definition.get("depends_on", {}).items()},
        health=definition.get("healthcheck", {}).get("test", []),
        restart=definition.get("restart", "no"),
        published={int(inside): int(outside) for outside, inside in published},
    )


def _mounted(text: str) -> Mount:
    source, target, *options = text.split(":")
    return Mount(source, target, "ro" in options)


def _interpolated(text: str, variables: dict[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name, kind, default = match.groups()
        assert name in variables or kind != "?", f"{name} is not set."
        return variables.get(name) or default or ""

    return _VARIABLE.sub(value, text)
