"""Reads schemas from the schema registry."""

from typing import Any
from urllib.parse import quote

import requests
from cachetools import TTLCache

from backend.domain import json
from backend.domain.avro.schema import AvroSchema, SchemaError
from backend.settings import Settings

_SECONDS = 10.0
_NOT_FOUND = 404
_SCHEMA_NOT_FOUND = 40403
"""The registry's own code. Without it, something else has answered, such as a proxy."""
_REFUSED_SECONDS = 60.0
_MOST_REFUSED = 1000


class SchemaRegistry:
    """Each schema is asked for once, one that cannot be used once a minute."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.schema_registry_url.rstrip("/")
        password = settings.schema_registry_password.get_secret_value()
        self._login = (settings.schema_registry_user, password) if settings.schema_registry_user else None
        self._schemas: dict[int, AvroSchema] = {}
        self._refused: TTLCache[int, str] = TTLCache(_MOST_REFUSED, _REFUSED_SECONDS)

    def schema(self, schema_id: int) -> AvroSchema:
        """The Avro schema with this id. Raises RequestException, and SchemaError if the registry knows no schema with
        this id or AvroSchema refuses it."""
        if schema_id in self._schemas:
            return self._schemas[schema_id]
        message = self._refused.get(schema_id)
        if message is not None:
            raise SchemaError(message)
        try:
            schema = self._schemas[schema_id] = self._asked(schema_id)
        except SchemaError as error:
            # Each record of a topic may have this id. The schema may still be registered later.
            self._refused[schema_id] = str(error)
            raise
        return schema

    def _asked(self, schema_id: int) -> AvroSchema:
        answer = requests.get(f"{self._url}/schemas/ids/{schema_id}", auth=self._login, timeout=_SECONDS)
        if answer.status_code == _NOT_FOUND and _error_code(answer) == _SCHEMA_NOT_FOUND:
            raise SchemaError(f"The schema registry has no schema with the id {schema_id}.")
        answer.raise_for_status()
        try:
            return AvroSchema(json.loads(answer.json()["schema"]))
        except json.InvalidJsonError:
            raise SchemaError(f"The schema with the id {schema_id} is none of Avro.") from None

    def latest(self, subject: str) -> Any:
        """The latest schema of the subject, as JSON; None if there is none. Raises RequestException."""
        path = f"{self._url}/subjects/{quote(subject, safe='')}/versions/latest"
        answer = requests.get(path, auth=self._login, timeout=_SECONDS)
        if answer.status_code == _NOT_FOUND:
            return None
        answer.raise_for_status()
        return json.loads(answer.json()["schema"])


def _error_code(answer: requests.Response) -> Any:
    try:
        body = answer.json()
    except requests.JSONDecodeError:
        return None
    return body.get("error_code") if isinstance(body, dict) else None
