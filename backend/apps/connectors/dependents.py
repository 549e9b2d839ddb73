"""What depends on a connector. An app whose objects use connectors registers a finder for them in ``ready``."""

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
    """The names of everything that uses the connector."""
    return [dependent.name for find in _finders for dependent in find(connector)]
