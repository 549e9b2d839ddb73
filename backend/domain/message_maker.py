"""From what an input received to messages: their id, ordering key, route and index."""

import hashlib
from typing import Any

from backend.domain import json, limits, paths, routing
from backend.domain.filters.fields import index_of
from backend.domain.inputs.base import OrderedInput
from backend.domain.message import INDEX, Message, new_message_id
from backend.domain.pipeline import PipelineSnapshot

NDJSON = "application/x-ndjson"

_NO_HEADERS: dict[str, str] = {}


def is_json(content_type: str) -> bool:
    """Whether a body of that content type is JSON."""
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == "application/json" or media_type.endswith("+json")


def is_batch(content_type: str) -> bool:
    """Whether a body of that content type is several messages."""
    return content_type.partition(";")[0].strip().lower() == NDJSON


def bodies_of(body: bytes, content_type: str) -> tuple[list[tuple[int, bytes]], str]:
    """The bodies of the messages that were sent as one body, each with the number of its line, and their content type:
    in NDJSON each line is one that is not blank."""
    if not is_batch(content_type):
        return [(1, body)], content_type
    return [(number, line) for number, line in enumerate(body.splitlines(), 1) if line.strip()], "application/json"


class MessageMaker:
    """Makes the messages that one version of a pipeline receives. ``topic`` is where they enter."""

    def __init__(self, pipeline: PipelineSnapshot) -> None:
        config = pipeline.config
        self._pipeline_id = str(pipeline.id)
        self._version = pipeline.version
        self.topic, self._slip = routing.route(config, self._pipeline_id)
        ordering_key = config.input.ordering_key if isinstance(config.input, OrderedInput) else None
        self._ordering_key = None if ordering_key is None else paths.parse_path(ordering_key)
        # With transforms and stream processing the index is made of their result.
        self._index = [] if config.transforms or config.stream_processing else config.index

    def make(
        self,
        body: bytes,
        content_type: str,
        *,
        received_at: str,
        headers: dict[str, str] = _NO_HEADERS,
        message_id: str = "",
        key: bytes | None = None,
    ) -> Message:
        """One message, with an id of its own unless one is given.

        It is ordered by the pipeline's ordering key, without one by ``key``, and is otherwise independent.
        Raises InvalidJsonError when the content type says JSON and the body is something else, and TooLargeError
        for an index that is too large.
        """
        document = json.loads(body) if is_json(content_type) else None
        message_id = message_id or new_message_id()
        return Message(
            id=message_id,
            pipeline_id=self._pipeline_id,
            version=self._version,
            key=_bounded(self._key_of(document) or key or message_id.encode()),
            body=body,
            content_type=content_type,
            received_at=received_at,
            slip=self._slip,
            extra=headers | {INDEX: index_of(self._index, document).decode()} if self._index else headers,
        )

    def _key_of(self, document: Any) -> bytes | None:
        if self._ordering_key is None:
            return None
        value = paths.get(document, self._ordering_key)
        if value is paths.MISSING or value is None:
            return None
        return value.encode() if isinstance(value, str) else json.dumps(value)


def _bounded(key: bytes) -> bytes:
    """Every record that follows from a message carries its key."""
    return key if len(key) <= limits.KEY_BYTES else hashlib.sha256(key).hexdigest().encode()
