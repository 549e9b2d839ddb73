"""What a version of a pipeline makes of a message: its steps, and the records in which their results go on. The stages
and the console's dry run share it, so that what is shown is what is delivered."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from backend.domain import limits, routing
from backend.domain.filters.fields import IndexedField, index_of
from backend.domain.message import INDEX, Message, child_message_id
from backend.domain.pipeline import PipelineSnapshot
from backend.domain.records import Record
from backend.domain.stream_processing import CONTENT_TYPE
from backend.domain.transforms.chain import Chain, Result


@dataclass(frozen=True, slots=True)
class Adaptation:
    """A version of a pipeline, compiled."""

    chain: Chain
    index: list[IndexedField]
    write: Callable[[Any], bytes] | None = None
    """Encodes a document as Avro, for stream processing."""

    @classmethod
    def of(cls, snapshot: PipelineSnapshot) -> "Adaptation":
        config, write = snapshot.config, None
        if config.stream_processing is not None:
            assert snapshot.schema_id is not None  # the schema is registered before the version is published
            write = config.stream_processing.compile(snapshot.schema_id)
        return cls(Chain(config.transforms), config.index, write)

    def records(self, message: Message, results: Sequence[Result]) -> list[Record]:
        """The results of the steps, on their way to the next stage. Raises TransformError and TooLargeError."""
        topic, moved = message.advanced()
        if self.write is not None:
            results = [replace(r, body=self.write(r.document), content_type=CONTENT_TYPE) for r in results]
            for result in results:
                limits.check_body(len(result.body))
        is_filtered = topic == routing.FILTER or routing.FILTER in moved.slip
        if len(results) == 1:  # nearly always; a single record keeps the limits that a message has
            return [self._record(topic, moved, moved.id, results[0], is_filtered)]
        records, made = [], limits.FanOut(limits.TRANSACTION_BYTES)
        for number, result in enumerate(results):
            record = self._record(topic, moved, child_message_id(message.id, number), result, is_filtered)
            made.add(record.size)
            records.append(record)
        return records

    def _record(self, topic: str, message: Message, id: str, result: Result, is_filtered: bool) -> Record:
        extra = message.extra
        if is_filtered:
            extra = extra | {INDEX: index_of(self.index, result.document).decode()}
        one = replace(message, id=id, body=result.body, content_type=result.content_type, extra=extra)
        return Record.of(topic, one)
