"""The read API of a Confluent-compatible schema registry: Confluent's "Schema Registry API reference".

A collection whose values are sent as Avro has the subject TOPIC-value.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from backend.domain.numbers import small_number
from backend.kafka.gateway.ports import Accounts

_SUFFIX = "-value"
_AUTHENTICATE = {"www-authenticate": 'Basic realm="Headrace"'}


@dataclass(frozen=True)
class RegisteredSchema:
    """A version of a subject's schema. ``id`` is unique among all schemas; ``text`` is JSON."""

    id: int
    topic: str
    version: int
    text: str

    @property
    def subject(self) -> str:
        return self.topic + _SUFFIX


class Schemas(Protocol):
    async def of(self, workspace: UUID) -> Sequence[RegisteredSchema]:
        """Those of a workspace, in the order of subjects and versions. Raises StoreError."""


class RegistryError(Exception):
    """An answer that is an error, with Confluent's code."""

    def __init__(self, status: int, code: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers
        self.body = {"error_code": code, "message": message}


class Registry:
    """Answers GET requests of the registry's API."""

    def __init__(self, accounts: Accounts, schemas: Schemas) -> None:
        self._accounts = accounts
        self._schemas = schemas

    async def get(self, path: str, authorization: str) -> Any:
        """The answer as JSON's types, or a schema's text. Raises RegistryError and StoreError."""
        workspace = await self._workspace(authorization)
        schemas = await self._schemas.of(workspace)
        match [part for part in path.split("/") if part]:
            case []:
                return {}
            case ["config"] | ["config", _]:
                return {"compatibilityLevel": "NONE"}
            case ["mode"] | ["mode", _]:
                return {"mode": "READONLY"}
            case ["schemas", "types"]:
                return ["AVRO"]
            case ["schemas", "ids", schema_id]:
                return {"schema": _with_id(schemas, schema_id).text}
            case ["schemas", "ids", schema_id, "schema"]:
                return Text(_with_id(schemas, schema_id).text)
            case ["schemas", "ids", schema_id, "subjects"]:
                return [_with_id(schemas, schema_id).subject]
            case ["schemas", "ids", schema_id, "versions"]:
                schema = _with_id(schemas, schema_id)
                return [{"subject": schema.subject, "version": schema.version}]
            case ["subjects"]:
                return list(dict.fromkeys(schema.subject for schema in schemas))
            case ["subjects", subject, "versions"]:
                return [schema.version for schema in _of_subject(schemas, subject)]
            case ["subjects", subject, "versions", version]:
                schema = _version(schemas, subject, version)
                return {
                    "subject": schema.subject,
                    "version": schema.version,
                    "id": schema.id,
                    "schema": schema.text,
                }
            case ["subjects", subject, "versions", version, "schema"]:
                return Text(_version(schemas, subject, version).text)
        raise RegistryError(404, 404, "HTTP 404 Not Found")

    async def _workspace(self, authorization: str) -> UUID:
        scheme, _, encoded = authorization.partition(" ")
        try:
            user, colon, key = base64.b64decode(encoded, validate=True).decode().partition(":")
        except ValueError:
            colon = ""
        account = await self._accounts.by_key(user, key) if scheme.lower() == "basic" and colon else None
        if account is None:
            raise RegistryError(401, 401, "Unauthorized", _AUTHENTICATE)
        return account.workspace


class Text(str):
    """An answer that is sent as it is."""


def _with_id(schemas: Sequence[RegisteredSchema], schema_id: str) -> RegisteredSchema:
    for schema in schemas:
        if str(schema.id) == schema_id:
            return schema
    raise RegistryError(404, 40403, "Schema not found")


def _of_subject(schemas: Sequence[RegisteredSchema], subject: str) -> list[RegisteredSchema]:
    versions = [schema for schema in schemas if schema.subject == subject]
    if not versions:
        raise RegistryError(404, 40401, f"Subject '{subject}' not found.")
    return versions


def _version(schemas: Sequence[RegisteredSchema], subject: str, version: str) -> RegisteredSchema:
    versions = _of_subject(schemas, subject)
    if version in ("latest", "-1"):
        return versions[-1]
    number = small_number(version)
    if number is None or not 0 < number < 2**31:
        raise RegistryError(
            422,
            42202,
            f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] and "
            'the string "latest"',
        )
    for schema in versions:
        if schema.version == number:
            return schema
    raise RegistryError(404, 40402, f"Version {int(version)} not found.")
