"""Where connectors run: in Kafka Connect clusters, or as Headrace's own. Both are the same for a statement."""

from abc import ABC, abstractmethod

from backend.apps.sql.entities import ConnectorDescription, ListedConnector, Plugin
from backend.domain.connect_sql.statements import Change, Direction

OWN = "Headrace"


class Home(ABC):
    """Its methods raise SqlError."""

    name: str

    @abstractmethod
    def plugins(self) -> list[Plugin]:
        """The classes of which connectors can be made here."""

    @abstractmethod
    def connectors(self) -> list[ListedConnector]:
        """The connectors that are here."""

    @abstractmethod
    def create(self, direction: Direction, name: str, properties: dict[str, str]) -> tuple[str, list[str]]:
        """Makes a connector; returns its class, and sentences on what else was made."""

    @abstractmethod
    def describe(self, name: str) -> ConnectorDescription:
        """What is known of a connector."""

    @abstractmethod
    def drop(self, name: str) -> list[str]:
        """Stops and deletes a connector; returns sentences on what else that concerns."""

    @abstractmethod
    def change(self, name: str, change: Change) -> str:
        """Pauses, resumes or restarts a connector; returns what else that concerns."""


def either(words: list[str]) -> str:
    """``a, b or c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
