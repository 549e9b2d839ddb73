"""What a connector is: one file in ``backend/connectors`` that declares a system once.

The connection (address and credentials) is saved once by a team; each pipeline that uses it adds only the options of
its own use.
"""

import asyncio
import builtins
import logging
from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from backend.domain.capabilities import Capability, Connection
from backend.domain.errors import error_sentence, error_trace
from backend.domain.masking import written_secrets
from backend.domain.model import StrictModel
from backend.domain.registry import Registry

log = logging.getLogger(__name__)

CHECK_SECONDS = 15.0
"""A connection test that takes longer has failed."""

CapabilityT = TypeVar("CapabilityT", bound=Capability[Any, Any])


class CheckFailedError(Exception):
    """A connection test that failed; the message says what, in the user's terms.

    ``field`` is the connection's field that is to blame, when one is; within another field, its dotted path.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class DoubtfulAnswer(str):
    """What a connection test says of an answer that may be right or a mistake, such as 404: people have to judge."""


class Connector(ABC):
    """A type of system. The docstring's first line is the description shown to users."""

    type: ClassVar[str]
    title: ClassVar[str]
    connection_model: ClassVar[builtins.type[Connection]]
    capabilities: ClassVar[tuple[builtins.type[Capability[Any, Any]], ...]]
    """What it can do: at most one class of each kind."""
    requires: ClassVar[tuple[str, ...]] = ()
    """Vendor packages, by the names they are imported under. They are imported inside the functions that use them,
    so that one that is missing concerns this connector alone."""
    example: ClassVar[dict[str, Any]]
    """A valid connection, shown in the documentation."""

    @staticmethod
    @abstractmethod
    async def check(connection: Any) -> str:
        """Really connects; returns a sentence on what was reached. Raises CheckFailedError.

        Need not limit its own time: ``check_connection`` does."""

    @classmethod
    def description(cls) -> str:
        return (cls.__doc__ or "").strip().split("\n", 1)[0]

    @classmethod
    def capability(cls, kind: builtins.type[CapabilityT]) -> builtins.type[CapabilityT] | None:
        """Its class of that kind, or None when it cannot do that."""
        return next((offered for offered in cls.capabilities if issubclass(offered, kind)), None)

    @classmethod
    def unavailable(cls) -> str:
        """Why it cannot be used here, in a sentence; empty when it can."""
        return next(filter(None, map(_missing, cls.requires)), "")


def _missing(package: str) -> str:
    """Why that package cannot be imported, in a sentence; empty when it is there."""
    try:
        is_there = find_spec(package) is not None
    except ModuleNotFoundError as error:
        # The packages above it are imported to find it: they may be what is missing, or need what is.
        if error.name is None or not f"{package}.".startswith(f"{error.name}."):
            return f"The Python package {package} cannot be loaded on this server: {error_sentence(error)}"
        is_there = False
    except Exception as error:  # raised by a package above it while it is imported, or by one without a specification
        return f"The Python package {package} cannot be loaded on this server: {error_sentence(error)}"
    return "" if is_there else f"The Python package {package} is not installed on this server."


class RuntimeConnector(StrictModel):
    """A connector as the data plane needs it. ``connection`` holds secrets in the clear: memory only.

    ``error`` says why the connection could not be read. ``registered`` is what its ``Register`` made for the uses of
    the pipeline, by their places.
    """

    type: str
    connection: dict[str, Any] = Field(repr=False)
    error: str = ""
    registered: dict[str, dict[str, Any]] = Field(default_factory=dict)


async def check_connection(connector: type[Connector], connection: Connection) -> str:
    """``connector.check`` with a time limit around it. Raises CheckFailedError, whatever the check raises."""
    if reason := connector.unavailable():
        raise CheckFailedError(reason)
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await connector.check(connection)
    except CheckFailedError:
        raise
    except TimeoutError:
        raise no_answer(connection) from None
    except (Exception, SystemExit) as error:
        secrets = written_secrets(connection)
        trace = error_trace(error, secrets)
        log.error("The check of a connector of type %s failed unexpectedly.\n%s", connector.type, trace)
        raise CheckFailedError(f"The check failed unexpectedly: {error_sentence(error, secrets)}") from None


def no_answer(connection: Connection) -> CheckFailedError:
    """What a check that takes longer than ``CHECK_SECONDS`` ends with."""
    return CheckFailedError(
        f"No answer within {CHECK_SECONDS:g} seconds: check the address, and that no firewall is in between.",
        field=next(iter(connection.hosts()), None),
    )


connectors: Registry[Connector] = Registry("backend.connectors", skip_broken=True)
