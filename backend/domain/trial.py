"""What becomes of one message in a version of a pipeline, by the functions that its stages run: nothing is sent,
stored or counted."""

import base64
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec.structs import replace

from backend.domain import formats, json, limits, routing
from backend.domain.adapting import Adaptation
from backend.domain.avro.schema import AvroSchema
from backend.domain.diff import differences
from backend.domain.inputs.filter import FilterInput
from backend.domain.message import DEAD_ERROR, FILTERED, INDEX, Message, new_message_id, utc_now
from backend.domain.message_maker import MessageMaker, bodies_of
from backend.domain.offering import record_for
from backend.domain.paths import MISSING
from backend.domain.pipeline import PipelineConfig, PipelineSnapshot
from backend.domain.records import Record
from backend.domain.stream_processing import CONTENT_TYPE as AVRO
from backend.domain.transforms.base import StepResources, TransformError
from backend.domain.transforms.chain import StepTrace


class SampleError(ValueError):
    """A sample that is not one message; the text is a sentence."""


@dataclass
class Trial:
    """``topics`` are those of the message's way; ``messages`` are what the steps hand on, none if it was dropped or if
    there is an ``error``, with which it is refused or becomes a dead letter."""

    topics: list[str]
    steps: list[StepTrace] = field(default_factory=list)
    error: str = ""
    messages: list[Message] = field(default_factory=list)


ChangeKind = Literal["added", "changed", "lost"]


@dataclass(frozen=True, slots=True)
class Difference:
    """``message`` is counted from 1; ``before`` is what was delivered, and both are JSON, empty for none."""

    message: int
    path: str
    change: ChangeKind
    before: str
    after: str


def sample(snapshot: PipelineSnapshot, body: bytes, content_type: str) -> Message:
    """The message as it enters the pipeline, received now. Raises InvalidJsonError, TooLargeError, and SampleError for
    a body that is several messages or none."""
    limits.check_body(len(body))
    if isinstance(snapshot.config.input, FilterInput):
        return _taken_by_filter(snapshot, body, content_type)
    bodies, content_type = bodies_of(body, content_type)
    if not bodies:
        raise SampleError("The sample has no message: send one JSON document per line.")
    if len(bodies) > 1:
        raise SampleError(f"The sample has {len(bodies):,} messages, one on each line: try one at a time.")
    [(_, one)] = bodies
    return MessageMaker(snapshot).make(one, content_type, received_at=utc_now())


async def tried(snapshot: PipelineSnapshot, message: Message, resources: StepResources) -> Trial:
    """What becomes of a message that enters the pipeline. Steps that need a resource which is not provided are passed
    over."""
    entry, slip = routing.route(snapshot.config, str(snapshot.id))
    trial = Trial([entry, *slip])
    if entry != routing.TRANSFORMER:
        trial.messages = [message]
        return trial
    adaptation = Adaptation.of(snapshot)
    trace = await adaptation.chain.trace(message.body, resources, message)
    trial.steps, trial.error = trace.steps, trace.error
    try:
        trial.messages = [_message(record) for record in adaptation.records(message, trace.results)]
    except (TransformError, limits.TooLargeError) as error:
        trial.error = str(error)
    return trial


def replayed(snapshot: PipelineSnapshot, message: Message) -> Message:
    """A message that was received, as it enters this version. Raises as ``sample`` does."""
    extra = {name: value for name, value in message.extra.items() if name not in (INDEX, FILTERED)}
    if isinstance(snapshot.config.input, FilterInput):
        return replace(_offered(snapshot, replace(message, extra=extra)), id=message.id)
    return MessageMaker(snapshot).make(
        message.body,
        message.content_type,
        received_at=message.received_at,
        headers=extra,
        message_id=message.id,
        key=message.key,
    )


def compared(delivered: Sequence[bytes], results: Sequence[bytes]) -> list[Difference]:
    """How messages differ from those that were delivered, in their order."""
    found = []
    for number, (before, after) in enumerate(itertools.zip_longest(delivered, results), 1):
        for path, left, right in differences(_document(before), _document(after)):
            found.append(Difference(number, path, _change(left, right), _json(left), _json(right)))
    return found


def _change(before: Any, after: Any) -> ChangeKind:
    if before is MISSING:
        return "added"
    return "lost" if after is MISSING else "changed"


def shown(body: bytes, content_type: str, config: PipelineConfig) -> tuple[str, bool]:
    """The same of a message that the steps handed on; what is handed over as Avro is JSON here, as its reader has
    it."""
    if config.stream_processing is not None and content_type == AVRO:
        datum = formats.read_avro(body, AvroSchema(config.stream_processing.avro_schema))
        return json.dumps(datum).decode(), False
    return text(body)


def text(body: bytes) -> tuple[str, bool]:
    """A body as text, or in base64 when it is no text, and whether it is."""
    try:
        return body.decode(), False
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), True


def _taken_by_filter(snapshot: PipelineSnapshot, body: bytes, content_type: str) -> Message:
    message_id = new_message_id()
    return _offered(snapshot, Message(message_id, "", 0, message_id.encode(), body, content_type, utc_now(), ()))


def _offered(snapshot: PipelineSnapshot, offered: Message) -> Message:
    message = _message(record_for(snapshot, offered, ()))
    if DEAD_ERROR in message.extra:
        raise limits.TooLargeError(message.extra[DEAD_ERROR])
    return message


def _document(body: bytes | None) -> Any:
    """MISSING without a body, and the text of one that is not JSON."""
    if body is None:
        return MISSING
    try:
        return json.loads(body)
    except json.InvalidJsonError:
        return text(body)[0]


def _json(value: Any) -> str:
    return "" if value is MISSING else json.dumps(value).decode()


def _message(record: Record) -> Message:
    """As the next stage reads it."""
    return Message.from_kafka(key=record.key, value=record.value, headers=record.headers)
