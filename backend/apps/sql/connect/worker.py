"""Headrace's own connectors, as a Kafka Connect worker would answer for them.

A connector's tasks are the pipelines that use it. What is made here is the same object as one that is made by a
statement, in the browser or by the REST API.
"""

import platform
from typing import Any

import requests

from backend.apps.connectors.models import Connector
from backend.apps.connectors.selectors import connector_failure, connectors_of
from backend.apps.pipelines.models import Pipeline
from backend.apps.sql import imports, topics
from backend.apps.sql.connect.definitions import definition, definitions_of
from backend.apps.sql.errors import SqlError
from backend.apps.sql.models import SqlSource
from backend.apps.sql.own_home import CLASS, OwnHome, direction_of
from backend.apps.workspaces.models import User, Workspace
from backend.domain import connector as domain
from backend.domain.connect_sql.printer import type_name
from backend.domain.connect_sql.sources import source_of
from backend.domain.connect_sql.statements import Change, ColumnDefinition, Direction
from backend.domain.masking import MASK
from backend.domain.model import UnreadableConfigError
from backend.domain.registry import BrokenComponentError, UnknownComponentError
from backend.network.schema_registry import SchemaRegistry
from backend.settings import platform_settings

VERSION = "4.3.1"
"""The release of Kafka whose REST API this is a subset of."""
_LONGEST_NAME = 100


class OwnWorker:
    """Its methods raise SqlError, whose status is that of Kafka Connect's answer."""

    def __init__(self, workspace: Workspace, actor: User) -> None:
        self._workspace = workspace
        self._home = OwnHome(workspace, actor)

    # -- the worker ------------------------------------------------------------

    @staticmethod
    def about() -> dict[str, Any]:
        return {"version": VERSION, "commit": "headrace", "kafka_cluster_id": topics.cluster_id()}

    def plugins(self) -> list[dict[str, Any]]:
        """Connectors only, whatever is asked for: converters and transformations are parts of pipelines."""
        return [
            {"class": plugin.connector_class, "type": direction, "version": VERSION}
            for plugin in self._home.plugins()
            if (direction := _direction(plugin.connector_class))
        ]

    def definitions(self, name: str) -> list[dict[str, Any]]:
        own = definitions_of(_class(name))
        imported = imports.properties_of(name).items()
        return own + [
            definition(key, {"type": "string", "description": text}, order=len(own) + place)
            for place, (key, text) in enumerate(imported)
        ]

    def validate(self, name: str, properties: dict[str, str]) -> dict[str, Any]:
        """Every property of the class, and every other that was sent, with what is wrong with it."""
        definitions = {one["name"]: one for one in self.definitions(name)}
        given = {key: value for key, value in properties.items() if key != "name"}
        errors = self._home.validate(name, given)
        configs = [
            {
                "definition": definitions.get(key),
                "value": {
                    "name": key,
                    "value": _shown(definitions.get(key), given.get(key)),
                    "recommended_values": [],
                    "errors": errors.get(key, []),
                    "visible": True,
                },
            }
            for key in dict.fromkeys([*definitions, *given, *errors])
        ]
        groups = list(dict.fromkeys(one["group"] for one in definitions.values()))
        return {"name": name, "error_count": sum(map(len, errors.values())), "groups": groups, "configs": configs}

    # -- connectors ------------------------------------------------------------

    def names(self) -> list[str]:
        return [connector.name for connector in self._connectors()]

    def expanded(self, parts: list[str]) -> dict[str, Any]:
        """``info`` and ``status`` of each connector, by its name."""
        known = {"info": self._info, "status": self._status}
        return {
            connector.name: {part: known[part](connector) for part in parts if part in known}
            for connector in self._connectors()
        }

    def create(self, name: str, properties: dict[str, str]) -> dict[str, Any]:
        if not name.strip() or len(name) > _LONGEST_NAME:
            raise SqlError(f"The name of a connector has 1 to {_LONGEST_NAME} characters.")
        if any(connector.name == name for connector in connectors_of(self._workspace)):
            raise SqlError(f"Connector {name} already exists.", status=409)
        given = _without_name(name, properties)
        direction = Direction(_direction(_class(given.get(CLASS, "")).type).upper() or "SOURCE")
        self._home.create(direction, name, given)
        return self._info(self._get(name))

    def replace(self, name: str, properties: dict[str, str]) -> tuple[dict[str, Any], bool]:
        """The connector with these properties, and whether it was made."""
        if not any(connector.name == name for connector in self._connectors()):
            return self.create(name, properties), True
        self._home.update(name, _without_name(name, properties))
        return self._info(self._get(name)), False

    def patch(self, name: str, properties: dict[str, str | None]) -> dict[str, Any]:
        """Changes some properties; those that are null are removed."""
        merged = self.config(name) | properties
        return self.replace(name, {key: value for key, value in merged.items() if value is not None})[0]

    def delete(self, name: str) -> None:
        self._home.drop(self._get(name).name)

    def info(self, name: str) -> dict[str, Any]:
        return self._info(self._get(name))

    def config(self, name: str) -> dict[str, str]:
        connector = self._get(name)
        return {"name": connector.name} | self._home.properties(connector)

    def status(self, name: str) -> dict[str, Any]:
        return self._status(self._get(name))

    def tasks(self, name: str) -> list[dict[str, Any]]:
        connector = self._get(name)
        return [
            {"id": {"connector": name, "task": number}, "config": {"pipeline": pipeline.name}}
            for number, pipeline in enumerate(self._home.pipelines(connector))
        ]

    def task(self, name: str, number: int) -> dict[str, Any]:
        tasks = self.status(name)["tasks"]
        if number >= len(tasks):
            raise SqlError(f"Connector {name} has no task {number}.", status=404)
        return dict(tasks[number])

    def change(self, name: str, change: Change) -> None:
        self._home.change(self._get(name).name, change)

    # -- topics ------------------------------------------------------------

    def topics(self, name: str) -> list[str]:
        """Those of Kafka that the connector's pipelines read and write."""
        connector = self._get(name)
        used: set[str] = set()
        for pipeline in self._home.pipelines(connector):
            used |= self._topics_of(pipeline)
        return sorted(used)

    def schema(self, name: str, topic: str) -> dict[str, Any]:
        """What records of the topic have, by the streams and tables that are declared on it, or by the registry."""
        if topic not in self.topics(name):
            raise SqlError(f"Connector {name} does not use the topic {topic}.", status=404)
        declared = SqlSource.objects.filter(workspace=self._workspace, topic=topic).first()
        if declared is not None:
            source = source_of(declared.definition)
            return {
                "topic": topic,
                "source": source.name,
                "key": {"format": source.key_format, "columns": _columns(source.keys)},
                "value": {"format": source.value_format, "columns": _columns(source.values)},
            }
        registry = SchemaRegistry(platform_settings())
        try:
            found = {part: registry.latest(f"{topic}-{part}") for part in ("key", "value")}
        except requests.RequestException as error:
            raise SqlError(f"The schema registry does not answer: {type(error).__name__}.", status=502) from None
        if not any(found.values()):
            text = f"No stream or table is declared on {topic}, and the schema registry has no schema of it."
            raise SqlError(text, status=404)
        return {"topic": topic, "source": None} | {
            part: schema and {"format": "AVRO", "schema": schema} for part, schema in found.items()
        }

    # -- parts ------------------------------------------------------------

    def _connectors(self) -> list[Connector]:
        return [one for one in connectors_of(self._workspace).order_by("name") if _direction(one.type)]

    def _get(self, name: str) -> Connector:
        connector = self._home.get(name)
        if not _direction(connector.type):
            raise SqlError(f"Connector {name} neither reads nor writes messages.", status=404)
        return connector

    def _info(self, connector: Connector) -> dict[str, Any]:
        name = connector.name
        tasks = [one["id"] for one in self.tasks(name)]
        return {"name": name, "config": self.config(name), "tasks": tasks, "type": _direction(connector.type)}

    def _status(self, connector: Connector) -> dict[str, Any]:
        worker = f"{platform.node()}:headrace"
        tasks: list[dict[str, Any]] = [
            {"id": number, "state": _state(pipeline), "worker_id": worker}
            | ({"trace": pipeline.failure} if pipeline.failure else {})
            for number, pipeline in enumerate(self._home.pipelines(connector))
        ]
        state: dict[str, Any] = {"state": _state_of_all([task["state"] for task in tasks]), "worker_id": worker}
        if failure := connector_failure(connector):
            state |= {"state": "FAILED", "trace": failure}
        return {"name": connector.name, "connector": state, "tasks": tasks, "type": _direction(connector.type)}

    def _topics_of(self, pipeline: Pipeline) -> set[str]:
        version = pipeline.published or pipeline.versions.first()
        try:
            uses = version.load().uses() if version is not None else []
        except UnreadableConfigError:
            return set()
        kafka = set(connectors_of(self._workspace).filter(type="kafka").values_list("pk", flat=True))
        options = [placed.use.options for placed in uses if placed.use.connector in kafka]
        return {topic for one in options for topic in [one.get("topic"), *one.get("topics", [])] if topic}


def _direction(type: str) -> str:
    """Kafka Connect has no connectors of both directions; most programs offer sources and sinks apart."""
    direction = direction_of(type)
    return {"none": "", "both": "source"}.get(direction, direction)


def _class(name: str) -> type[domain.Connector]:
    try:
        return domain.connectors.get(name)
    except BrokenComponentError as error:
        raise SqlError(str(error), status=400) from None
    except UnknownComponentError:
        known = ", ".join(type.type for type in domain.connectors if _direction(type.type))
        raise SqlError(f"There is no connector class {name}. Available: {known}.", status=400) from None


def _without_name(name: str, properties: dict[str, str]) -> dict[str, str]:
    if properties.get("name", name) != name:
        raise SqlError(f"The property name has to be the connector's, {name}, or to be left out.")
    return {key: value for key, value in properties.items() if key != "name"}


def _shown(definition: dict[str, Any] | None, value: str | None) -> str | None:
    """Values of properties that are unknown may be secrets in the wrong place."""
    return value if value is None or (definition and definition["type"] != "PASSWORD") else MASK


def _columns(columns: tuple[ColumnDefinition, ...]) -> list[dict[str, str]]:
    return [{"name": column.name, "type": type_name(column.type)} for column in columns]


def _state(pipeline: Pipeline) -> str:
    if pipeline.published is None:
        return "UNASSIGNED"
    if pipeline.paused:
        return "PAUSED"
    return "FAILED" if pipeline.failure else "RUNNING"


def _state_of_all(tasks: list[str]) -> str:
    """RUNNING as soon as one of its pipelines is published and not paused, though that may fail."""
    if "RUNNING" in tasks or "FAILED" in tasks:
        return "RUNNING"
    return "PAUSED" if "PAUSED" in tasks else "UNASSIGNED"
