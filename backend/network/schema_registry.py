"""Reads schemas from the schema registry."""

from functools import cache
from typing import Any
from urllib.parse import quote

import requests

from backend.domain import json
from backend.domain.avro.schema import AvroSchema
from backend.settings import Settings

_SECONDS = 10.0
_NOT_FOUND = 404


class SchemaRegistry:
    """Each schema is asked for once."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.schema_registry_url.rstrip("/")
        password = settings.schema_registry_password.get_secret_value()
        self._login = (settings.schema_registry_user, password) if settings.schema_registry_user else None
        self.schema = cache(self._schema)

    def _schema(self, schema_id: int) -> AvroSchema:
        """The Avro schema with this id. Raises RequestException, and SchemaError for what AvroSchema refuses."""
        answer = requests.get(f"{self._url}/schemas/ids/{schema_id}", auth=self._login, timeout=_SECONDS)
        answer.raise_for_status()
        return AvroSchema(json.loads(answer.json()["schema"]))

    def latest(self, subject: str) -> Any:
        """The latest schema of the subject, as JSON; None if there is none. Raises RequestException."""
        path = f"{self._url}/subjects/{quote(subject, safe='')}/versions/latest"
        answer = requests.get(path, auth=self._login, timeout=_SECONDS)
        if answer.status_code == _NOT_FOUND:
            return None
        answer.raise_for_status()
        return json.loads(answer.json()["schema"])
