"""What a pipeline gets whose filter took a message of another one."""

from collections.abc import Sequence

from msgspec.structs import replace

from backend.domain import json, limits, routing
from backend.domain.filters.fields import index_of
from backend.domain.message import FILTERED, INDEX, Message, filtered_message_id
from backend.domain.pipeline import PipelineSnapshot
from backend.domain.reasons import Reason
from backend.domain.records import Record, dead_letter
from backend.domain.stages import FILTERING


def record_for(subscriber: PipelineSnapshot, message: Message, passed: Sequence[str]) -> Record:
    """The subscriber's message on its way, or its dead letter: what is wrong with it concerns nobody else. ``passed``
    are the pipelines that had the message before."""
    topic, slip = routing.route(subscriber.config, str(subscriber.id))
    key = str(subscriber.id)
    offered = replace(
        message,
        id=filtered_message_id(message.id, key),
        pipeline_id=key,
        version=subscriber.version,
        slip=slip,
        extra=message.extra | {FILTERED: ",".join(passed)},
    )
    if topic != routing.FILTER:
        return Record.of(topic, offered)
    try:
        index = index_of(subscriber.config.index, _document(message.body)).decode()
    except limits.TooLargeError as error:
        return dead_letter(offered, stage=FILTERING.name, reason=Reason.TOO_LARGE, error=str(error))
    return Record.of(topic, replace(offered, extra=offered.extra | {INDEX: index}))


def _document(body: bytes) -> object:
    try:
        return json.loads(body)
    except json.InvalidJsonError:
        return None
