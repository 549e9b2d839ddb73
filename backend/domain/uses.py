"""Where a pipeline uses connectors. A connector is named nowhere else."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple
from uuid import UUID

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from pydantic_core.core_schema import SerializationInfo

from backend.domain.capabilities import Capability, DeliveryError, Options, Register
from backend.domain.connector import Connector, RuntimeConnector, connectors
from backend.domain.masking import dotted, value_at
from backend.domain.model import StrictModel, UnreadableConfigError
from backend.domain.reasons import Reason
from backend.domain.registry import BrokenComponentError, UnknownComponentError

CONNECTOR_IDS = "connector_ids"
"""Key of the validation context: ids of connectors by the names that a configuration file calls them."""
CONNECTOR_NAMES = "connector_names"
"""Key of the serialization context: names of connectors by their ids."""

OptionVersions = Mapping[str, tuple[str, str, int]]
"""By the dotted path of each use: the type of its connector, the capability, and the schema version of its options."""


def _id_of(value: Any, info: ValidationInfo) -> Any:
    ids: Mapping[str, UUID] | None = (info.context or {}).get(CONNECTOR_IDS)
    if ids is None:
        return value
    if value in ids.values():
        return value
    if value not in ids:
        raise ValueError(f"There is no connector {value!r}, neither here nor in what is applied.")
    return ids[value]


def _name_of(value: UUID, info: SerializationInfo) -> Any:
    names: Mapping[UUID, str] | None = (info.context or {}).get(CONNECTOR_NAMES)
    if names is not None:
        return names[value]
    return str(value) if info.mode == "json" else value


class Named(StrictModel):
    """What a pipeline has several of."""

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$",
        description="Short name, unique in the pipeline: lower-case letters, digits, - and _. It appears in metrics "
        "and dead letters.",
        examples=["erp"],
    )


class Use(StrictModel):
    """A connector, and the options of this use of it.

    A subclass says in ``capabilities`` what it asks of the connector: any one of them will do.
    """

    capabilities: ClassVar[tuple[type[Capability[Any, Any]], ...]] = ()

    connector: Annotated[UUID, BeforeValidator(_id_of), PlainSerializer(_name_of)] = Field(
        description="Connector to use."
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="Settings of this use, as the connector's type defines them."
    )

    @property
    def place(self) -> str:
        """What it is called within its pipeline; versions in which it has the same place use what was registered for
        it."""
        return "input"

    @property
    def breaker_name(self) -> str | None:
        """Under which its circuit breaker and rate limit are kept, if it has them."""
        return None

    @property
    def wanted(self) -> tuple[type[Capability[Any, Any]], ...]:
        """Of ``capabilities``, those that this use takes; the first that the connector has is the one."""
        return self.capabilities

    def capability_of(self, connector: type[Connector]) -> type[Capability[Any, Any]] | None:
        """The capability that it takes of a connector of that type; None when it has none that fits."""
        return next((offered for kind in self.wanted if (offered := connector.capability(kind))), None)

    def register_of(self, connector: type[Connector]) -> type[Register[Any, Any]] | None:
        """What prepares this use, in a connector of that type; None when it needs no preparation."""
        register, used = connector.capability(Register), self.capability_of(connector)
        return register if register and used and register.options_model is used.options_model else None

    def refusals(self, connector: type[Connector], connector_name: str) -> dict[str, str]:
        """Fields of this use that do not suit a connector of that type, each with a sentence."""
        if self.capability_of(connector) is None:
            return {"connector": f"{connector_name} cannot {self.capabilities[0].purpose}."}
        return {}

    def bind(self, connector: RuntimeConnector) -> Any:
        """The capability with the connector's connection, not yet open.

        Raises DeliveryError when the configuration no longer fits, or could not be read.
        """
        bound = bind(connector, self.options, self.capability_of, self.wanted[0].purpose)
        bound.registered = connector.registered.get(self.place, {})
        return bound

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Marks the two fields for the form, which has one widget for every use."""
        described = handler(schema)
        properties = handler.resolve_ref_schema(described)["properties"]
        properties["connector"] |= {"format": "connector", "capabilities": [kind.name for kind in cls.capabilities]}
        properties["options"]["format"] = "connector-options"
        return described


def bind(
    connector: RuntimeConnector,
    options: Mapping[str, Any],
    capability_of: Callable[[type[Connector]], type[Capability[Any, Any]] | None],
    purpose: str,
    options_version: int | None = None,
) -> Any:
    """A capability with connection and options, not yet open. ``options_version`` is that of their schema when they
    come from where they were stored. Raises DeliveryError."""
    if connector.error:
        raise DeliveryError(Reason.CONFIGURATION, connector.error, retryable=True)
    try:
        connector_type = connectors.get(connector.type)
        if reason := connector_type.unavailable():
            raise DeliveryError(Reason.CONFIGURATION, reason, retryable=True)
        capability = capability_of(connector_type)
        if capability is None:
            text = f"The connector type {connector.type} cannot {purpose}."
            raise DeliveryError(Reason.CONFIGURATION, text, retryable=False)
        if options_version is not None:
            options = capability.options_model.upgraded(dict(options), options_version)
        return capability(
            connector_type.connection_model.model_validate(connector.connection),
            capability.options_model.model_validate(options),
        )
    except BrokenComponentError as error:
        raise DeliveryError(Reason.CONFIGURATION, str(error), retryable=True) from None
    except (UnknownComponentError, UnreadableConfigError, ValidationError) as error:
        text = f"The configuration is rejected: {error}"
        raise DeliveryError(Reason.CONFIGURATION, text, retryable=False) from None


class PlacedUse(NamedTuple):
    """A use and where it stands, such as ``("outputs", 0)``."""

    path: tuple[str | int, ...]
    use: Use


def uses_in(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[PlacedUse]:
    """Every use in a validated configuration, at any depth, in the order of its fields."""
    if isinstance(value, Use):
        yield PlacedUse(path, value)
    if isinstance(value, BaseModel):
        value = vars(value)
    if isinstance(value, dict):
        for name, part in value.items():
            yield from uses_in(part, (*path, name))
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from uses_in(part, (*path, index))


def known_capability(use: Use, types: Mapping[UUID, str]) -> type[Capability[Any, Any]] | None:
    """What the use takes of its connector, by the connectors' types; None when the connector or its type is unknown
    here, or cannot do that any more."""
    try:
        return use.capability_of(connectors.get(types[use.connector]))
    except (KeyError, UnknownComponentError):
        return None


def option_versions(uses: Iterable[PlacedUse], types: Mapping[UUID, str]) -> dict[str, tuple[str, str, int]]:
    """The versions of options in their present form, to be stored beside them."""
    known = [(path, use, capability) for path, use in uses if (capability := known_capability(use, types))]
    return {
        dotted(path): (types[use.connector], capability.name, capability.options_model.schema_version)
        for path, use, capability in known
    }


def with_present_options(config: dict[str, Any], versions: OptionVersions) -> dict[str, Any]:
    """The configuration, which is not validated, with all options in their present form. Those of a connector type that
    is unknown here stay as they are. Raises UnreadableConfigError."""
    models = {path: _options_model(type, capability) for path, (type, capability, _) in versions.items()}
    outdated = {
        path: model for path, model in models.items() if model is not None and model.schema_version != versions[path][2]
    }
    if outdated:
        config = copy.deepcopy(config)
    for path, model in outdated.items():
        try:
            use = value_at(config, tuple(path.split(".")))
            use["options"] = model.upgraded(use.get("options", {}), versions[path][2])
        except UnreadableConfigError as error:
            raise UnreadableConfigError(f"The options of {path} cannot be read. {error}") from None
        except (LookupError, TypeError, ValueError, AttributeError):
            raise UnreadableConfigError(f"There are no options at {path}, which have a version.") from None
    return config


def _options_model(type: str, capability: str) -> type[Options] | None:
    """None when the connector type is unknown here, or cannot do that any more."""
    try:
        offered = connectors.get(type).capabilities
    except UnknownComponentError:
        return None
    return next((one.options_model for one in offered if one.name == capability), None)
