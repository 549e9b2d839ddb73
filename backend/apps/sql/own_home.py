"""Headrace's own connectors, which run as parts of pipelines."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import transaction

from backend.apps.connectors.dependents import dependents_of
from backend.apps.connectors.models import Connector
from backend.apps.connectors.selectors import connection_shown, connector_failure, connectors_of
from backend.apps.connectors.services import (
    connection_validate,
    connector_create,
    connector_delete,
    connector_update,
)
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.selectors import pipelines_using
from backend.apps.pipelines.services import pipeline_pause, pipeline_resume
from backend.apps.sql import imports
from backend.apps.sql.entities import ConnectorDescription, ListedConnector, Plugin
from backend.apps.sql.errors import SqlError
from backend.apps.sql.homes import OWN, Home
from backend.apps.workspaces.models import User, Workspace
from backend.domain import connector as domain
from backend.domain.connect_sql.statements import Change, Direction
from backend.domain.errors import ConfigError, ConflictError
from backend.domain.inputs.connector import ConnectorInput
from backend.domain.pipeline import OutputConfig
from backend.domain.registry import UnknownComponentError

CLASS = "connector.class"
_DEEPEST = 10


class OwnHome(Home):
    """The connectors of a workspace."""

    name = OWN

    def __init__(self, workspace: Workspace, actor: User) -> None:
        self._workspace = workspace
        self._actor = actor

    @staticmethod
    def has_class(name: str) -> bool:
        """Whether a connector of this class is one of Headrace's own, even if it is broken."""
        return name in {type.type for type in domain.connectors} | domain.connectors.broken.keys()

    def plugins(self) -> list[Plugin]:
        return [Plugin(type.type, direction_of(type.type), "", self.name) for type in domain.connectors]

    def connectors(self) -> list[ListedConnector]:
        return [self._listed(connector) for connector in connectors_of(self._workspace).order_by("name")]

    def create(self, direction: Direction, name: str, properties: dict[str, str]) -> tuple[str, list[str]]:
        given = dict(properties)
        type = given.pop(CLASS)
        offered = direction_of(type)
        if offered in ("source", "sink") and offered != direction.lower():
            text = f"The class {type} is a {offered}: write CREATE {offered.upper()} CONNECTOR."
            raise SqlError(text, properties={CLASS: [text]})
        if errors := self.validate(type, given):
            raise SqlError("The properties are not valid; nothing was made.", properties=errors)
        wanted = imports.wanted_of(name, type, given)
        with transaction.atomic():
            with _property_errors():
                connector = connector_create(
                    workspace=self._workspace, actor=self._actor, name=name, type=type, connection=_nested(given)
                )
            if wanted is None:
                return type, []
            return type, imports.imports_create(connector=connector, actor=self._actor, wanted=wanted)

    def update(self, name: str, properties: dict[str, str]) -> None:
        """Replaces the properties of a connector. A mask keeps the secret that is stored."""
        connector = self.get(name)
        given = dict(properties)
        if given.pop(CLASS) != connector.type:
            text = f"A connector keeps its class, which is {connector.type}: make another one for another system."
            raise SqlError(text, properties={CLASS: [text]})
        tables = self._tables(connector)
        if given.pop(imports.TABLES, tables) != tables:
            text = "A connector keeps its tables: make another one for others."
            raise SqlError(text, properties={imports.TABLES: [text]})
        with _property_errors():
            connector_update(connector=connector, actor=self._actor, name=name, connection=_nested(given))

    def validate(self, type: str, properties: dict[str, str]) -> dict[str, list[str]]:
        """What is wrong with single properties of a connector of this class."""
        given = {key: value for key, value in properties.items() if key != CLASS}
        errors: dict[str, list[str]] = {}
        try:
            imports.wanted_of("", type, given)
        except SqlError as error:
            errors = error.properties
        try:
            with _property_errors():
                connection_validate(workspace=self._workspace, type=type, connection=_nested(given))
        except SqlError as error:
            errors |= error.properties
        return errors

    def properties(self, connector: Connector) -> dict[str, str]:
        """The properties with which a connector could be made again, with masks in place of secrets."""
        tables = self._tables(connector)
        own = {imports.TABLES: tables} if tables else {}
        return {CLASS: connector.type} | dict(_flat(connection_shown(connector))) | own

    def describe(self, name: str) -> ConnectorDescription:
        connector = self.get(name)
        listed, brought = self._listed(connector), imports.imports_of(connector)
        return ConnectorDescription(
            name=listed.name,
            home=listed.home,
            direction=listed.direction,
            connector_class=listed.connector_class,
            state=listed.state,
            trace=connector_failure(connector),
            topics=[one.topic for one in brought],
            warnings=[f"{one.table}: {one.problem}" for one in brought if one.problem],
            used_by=[dependent.name for dependent in dependents_of(connector)],
        )

    def drop(self, name: str) -> list[str]:
        connector = self.get(name)
        ended = imports.imports_end(connector=connector, actor=self._actor)
        try:
            connector_delete(connector=connector, actor=self._actor)
        except ConflictError as error:
            raise SqlError(" ".join([*ended, str(error)]), status=409) from None
        return ended

    def change(self, name: str, change: Change) -> str:
        pipelines = [one for one in self.pipelines(self.get(name)) if one.published is not None]
        if not pipelines:
            raise SqlError(f"{name} is one of Headrace's own connectors: no pipeline that uses it is published.")
        if change is Change.RESTART:
            text = f"{name} is one of Headrace's own connectors: its pipelines start again what has failed."
            raise SqlError(text)
        for pipeline in pipelines:
            act = pipeline_pause if change is Change.PAUSE else pipeline_resume
            act(pipeline=pipeline, actor=self._actor)
        return f"the pipelines that use it: {', '.join(pipeline.name for pipeline in pipelines)}"

    def get(self, name: str) -> Connector:
        connector = connectors_of(self._workspace).filter(name=name).first()
        if connector is None:
            raise SqlError(f"There is no connector {name}.", status=404)
        return connector

    @staticmethod
    def pipelines(connector: Connector) -> list[Pipeline]:
        """Those that use it, the oldest first."""
        return list(pipelines_using(connector).select_related("published").order_by("created_at", "pk"))

    @staticmethod
    def _tables(connector: Connector) -> str:
        return ", ".join(one.table for one in imports.imports_of(connector))

    def _listed(self, connector: Connector) -> ListedConnector:
        state = "UNUSABLE" if connector_failure(connector) else "READY"
        return ListedConnector(connector.name, self.name, direction_of(connector.type), connector.type, state)


def direction_of(type: str) -> str:
    """Whether connectors of this class are sources or sinks: source, sink, both or none."""
    try:
        connector = domain.connectors.get(type)
    except UnknownComponentError:
        return "none"
    reads, writes = (
        any(map(connector.capability, kinds)) for kinds in (ConnectorInput.capabilities, OutputConfig.capabilities)
    )
    return "both" if reads and writes else "source" if reads else "sink" if writes else "none"


@contextmanager
def _property_errors() -> Iterator[None]:
    """Raises SqlError for a ConfigError of a connection."""
    try:
        yield
    except ConfigError as error:
        errors = {
            CLASS if path == "type" else path.removeprefix("connection."): sentences
            for path, sentences in error.errors.items()
        }
        raise SqlError("The properties are not valid; nothing was made.", properties=errors) from None


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The inverse of ``_nested``."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _flat(part, f"{path}.{key}" if path else str(key))
    elif isinstance(value, bool):
        yield path, str(value).lower()
    elif value is not None:
        yield path, str(value)


def _nested(properties: dict[str, str]) -> dict[str, Any]:
    """``a.b = 1`` as ``{"a": {"b": 1}}``, and ``a.0 = 1`` as a list."""
    nested: dict[str, Any] = {}
    for key, value in properties.items():
        *parents, last = key.split(".")
        if len(parents) > _DEEPEST:
            text = f"At most {_DEEPEST} dots may stand in the name of a property."
            raise SqlError("The properties are not valid; nothing was made.", properties={key: [text]})
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise _two_meanings(key)
        if last in place:
            raise _two_meanings(key)
        place[last] = value
    return {key: _with_lists(value) for key, value in nested.items()}


def _with_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(key.isdecimal() for key in value):
        return [_with_lists(value[key]) for key in sorted(value, key=int)]
    return {key: _with_lists(part) for key, part in value.items()}


def _two_meanings(key: str) -> SqlError:
    text = "This property has a value of its own and others below it."
    return SqlError("The properties are not valid; nothing was made.", properties={key: [text]})
