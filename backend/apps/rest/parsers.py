"""The documents of requests."""

from collections.abc import Mapping
from typing import IO, Any

from rest_framework.exceptions import APIException
from rest_framework.parsers import BaseParser

from backend.domain import screening

REQUEST_BYTES = 16 * 1024 * 1024
"""Limit of a request's document. The configuration of a whole workspace is sent as one of 10 MiB at most."""


class RequestTooLargeError(APIException):
    status_code = 413
    default_detail = f"The request is larger than {REQUEST_BYTES:,} bytes."


class ScreenedJSONParser(BaseParser):
    """Parses JSON, and refuses what nothing behind it could hold (``screening``)."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """Raises ConfigError, RequestTooLargeError."""
        text = stream.read(REQUEST_BYTES + 1)
        if len(text) > REQUEST_BYTES:
            raise RequestTooLargeError
        return screening.load_json(text)
