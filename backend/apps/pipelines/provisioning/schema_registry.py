"""The schema registry, with the schemas of each pipeline's messages."""

import importlib
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from django.conf import settings

from backend.domain import json, routing

_SECONDS = 10.0
_NOT_FOUND = 404
_CONFLICT = 409


class RegistryError(Exception):
    """The registry rejected a request or did not answer; the message says why. ``final`` means a retry is useless."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


def subject_of(pipeline_id: str) -> str:
    """The subject of the topic's values, as Confluent's serializers name it."""
    return f"{routing.processing_source(pipeline_id)}-value"


def check_compatible(pipeline_id: str, schema: dict[str, Any]) -> None:
    """Raises RegistryError when existing messages could not be read with the schema."""
    subject = subject_of(pipeline_id)
    if not _versions(subject):
        return
    if not _ask(lambda: _client().test_compatibility(subject, _schema(schema))):
        raise RegistryError(
            "This schema cannot read what was written with the one before: give new fields a default, and keep the "
            "names and types of the others.",
            final=True,
        )


def register(pipeline_id: str, schema: dict[str, Any]) -> tuple[int, int | None]:
    """The schema's id, and the version added for it: None when it was already registered."""
    subject = subject_of(pipeline_id)
    before = _versions(subject)
    schema_id: int = _ask(lambda: _client().register_schema(subject, _schema(schema)))
    after = _versions(subject)
    added = sorted(set(after) - set(before))
    return schema_id, added[-1] if added else None


def unregister(pipeline_id: str, version: int) -> None:
    _ask(lambda: _client().delete_version(subject_of(pipeline_id), version), missing=None)


def delete_subject(pipeline_id: str) -> None:
    """Removes the subject with all its versions."""
    _ask(lambda: _client().delete_subject(subject_of(pipeline_id)), missing=None)


def _versions(subject: str) -> list[int]:
    return list(_ask(lambda: _client().get_versions(subject), missing=[]))


def _schema(schema: dict[str, Any]) -> Any:
    return _library().Schema(json.dumps(schema).decode(), "AVRO")


@lru_cache
def _library() -> Any:
    """Imported on first use, because its HTTP client emits a deprecation warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module("confluent_kafka.schema_registry")


@lru_cache
def _client_of(url: str, credentials: str) -> Any:
    basic = {"basic.auth.user.info": credentials} if credentials != ":" else {}
    return _library().SchemaRegistryClient({"url": url, "timeout": _SECONDS, "max.retries": 0, **basic})


def _client() -> Any:
    console = settings.CONSOLE
    if not console.schema_registry_url:
        raise RegistryError(
            "This installation has no schema registry; its operator sets HEADRACE_SCHEMA_REGISTRY_URL.", final=True
        )
    password = console.schema_registry_password.get_secret_value()
    return _client_of(console.schema_registry_url, f"{console.schema_registry_user}:{password}")


def _ask(question: Callable[[], Any], **default: Any) -> Any:
    library = _library()
    import httpx  # a dependency of the library

    try:
        return question()
    except library.SchemaRegistryError as error:
        if error.http_status_code == _NOT_FOUND and "missing" in default:
            return default["missing"]
        final = error.http_status_code in (_CONFLICT, 422)
        raise RegistryError(f"The schema registry rejected the request: {error.error_message}.", final=final) from None
    except httpx.HTTPError as error:
        raise RegistryError(f"The schema registry does not answer: {error}.") from None
