"""What depends on a connector. An app whose objects use connectors registers a finder for them in ``ready``."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol
from uuid import UUID

from backend.apps.connectors.models import Connector

DependentKind = Literal["alert_rule", "connector", "pipeline", "registration"]


class _User(Protocol):
    pk: UUID
    name: str


FindDependents = Callable[[Connector], Iterable[_User]]

_finders: list[tuple[DependentKind, FindDependents]] = []


@dataclass(frozen=True)
class Dependent:
    """Something that uses a connector, which cannot be deleted then."""

    kind: DependentKind
    id: UUID
    name: str


def dependents_register(kind: DependentKind, find: FindDependents) -> None:
    _finders.append((kind, find))


def dependents_of(connector: Connector) -> list[Dependent]:
    """Everything that uses the connector."""
    return [Dependent(kind, user.pk, user.name) for kind, find in _finders for user in find(connector)]
