"""What depends on a connector. An app whose objects use connectors registers how to find them when it is ready."""

from collections.abc import Callable, Iterable
from typing import Protocol

from backend.apps.connectors.models import Connector


class Dependent(Protocol):
    name: str


FindDependents = Callable[[Connector], Iterable[Dependent]]

_finders: list[FindDependents] = []


def dependents_register(find: FindDependents) -> None:
    _finders.append(find)


def dependents_of(connector: Connector) -> list[str]:
    """The names of all that uses the connector."""
    return [dependent.name for find in _finders for dependent in find(connector)]
