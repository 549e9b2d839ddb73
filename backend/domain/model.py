"""The base of every configuration model."""

import re
from functools import lru_cache
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

ADVANCED: dict[str, Any] = {"advanced": True}
"""``json_schema_extra`` of a field whose default rarely changes: forms collapse it."""

SAME_SOURCE: dict[str, Any] = {"same_source": True}
"""``json_schema_extra`` of an input's option that changes neither what is read nor the messages that come of it, only
when, how fast, in which portions or within which limits. Reading goes on where it is when such an option changes; it
starts anew when any other does."""

_ACRONYMS = {
    "http": "HTTP",
    "url": "URL",
    "tls": "TLS",
    "sasl": "SASL",
    "sql": "SQL",
    "ssh": "SSH",
    "id": "ID",
    "api": "API",
    "ca": "CA",
    "oauth": "OAuth",
    "mongodb": "MongoDB",
    "csv": "CSV",
    "sas": "SAS",
    "sftp": "SFTP",
    "gcs": "GCS",
    "mqtt": "MQTT",
    "qos": "QoS",
    "sqs": "SQS",
    "fifo": "FIFO",
}


@lru_cache(maxsize=512)
def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The model's JSON Schema, which nobody may change. Making one takes tens of milliseconds."""
    return model.model_json_schema()


def label(name: str) -> str:
    """A Python name as a label: ``verify_tls`` is "Verify TLS", ``RetryPolicy`` "Retry policy"."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")
    text = " ".join(_ACRONYMS.get(word, word) for word in words)
    return text[:1].upper() + text[1:]


def _model_title(model: type[Any]) -> str:
    return label(model.__name__)


def _field_title(name: str, _info: Any) -> str:
    return label(name)


class StrictModel(BaseModel):
    """An immutable model that rejects unknown keys, so that a typo is an error at its field.

    Titles in its JSON Schema are labels, because forms show them.
    """

    model_config = ConfigDict(
        extra="forbid",
        defer_build=True,
        frozen=True,
        hide_input_in_errors=True,
        model_title_generator=_model_title,
        field_title_generator=_field_title,
    )


class UnreadableConfigError(ValueError):
    """A stored configuration that this release cannot read; the message is a sentence without values."""


class VersionedModel(StrictModel):
    """A configuration that is stored, and has to be read by later releases.

    A release that changes its stored form raises ``schema_version`` and extends ``upgrade``. The
    version is stored beside the configuration, never in it.
    """

    schema_version: ClassVar[int] = 1

    @classmethod
    def upgrade(cls, data: dict[str, Any], version: int) -> dict[str, Any]:
        """The configuration, stored with that version, in the form of the next version."""
        raise NotImplementedError

    @classmethod
    def upgraded(cls, data: dict[str, Any], version: int) -> dict[str, Any]:
        """In the present form, not validated. Raises UnreadableConfigError."""
        if version > cls.schema_version:
            raise UnreadableConfigError(
                f"It was stored by a later release (version {version} of its schema; this one reads up to "
                f"{cls.schema_version}). Upgrade Headrace, or save it again."
            )
        for number in range(version, cls.schema_version):
            try:
                data = cls.upgrade(data, number)
            except Exception as error:
                raise UnreadableConfigError(f"It cannot be upgraded from version {number}: {error!r}.") from None
        return data

    @classmethod
    def load_stored(cls, data: dict[str, Any], version: int) -> Self:
        """The stored configuration. Raises UnreadableConfigError."""
        return cls._readable(cls.upgraded(data, version))

    @classmethod
    def _readable(cls, data: dict[str, Any]) -> Self:
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise UnreadableConfigError(
                f"The stored configuration cannot be read: {where}: {first['msg']}. Save it again."
            ) from None
        except Exception as error:  # of a validator that does not expect what is stored
            text = f"The stored configuration cannot be read: {type(error).__name__}. Save it again."
            raise UnreadableConfigError(text) from error
