"""The filtering lane's handler: what it makes of one message stays within the limits."""

import asyncio
import json
import uuid
from collections import Counter
from typing import Any

from msgspec.structs import replace

from backend.domain import limits, routing
from backend.domain.inputs.filter import FilterInput
from backend.domain.message import (
    DEAD_DUE,
    DEAD_REASON,
    INDEX,
    PIPELINE,
    REDELIVERY,
    REDELIVERY_OUTPUT,
    Message,
    new_message_id,
    utc_now,
)
from backend.domain.pipeline import PipelineConfig, PipelineSnapshot
from backend.domain.reasons import Reason
from backend.domain.records import Record
from backend.manager_api.client import ConfigUnavailableError
from backend.manager_api.published import WorkspaceFilters
from spark_jobs.jobs.filtering import LANE, FilteringHandler
from spark_jobs.streaming.lane import LaneServices, Position
from tests.waiting import LIMIT_SECONDS

WORKSPACE = uuid.uuid4()
OUTPUT = {"name": "out", "connector": "0198a7e5-0000-7000-8000-000000000000"}
CONDITION = {"type": "equals", "field": "country", "value": "BR"}
SUBSCRIBER = {"input": {"type": "filter", "condition": CONDITION}, "outputs": [OUTPUT]}


class Known:
    """The configuration client, answered from memory, and a recorder."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.by_id: dict[str, PipelineSnapshot] = {}
        self.publisher = self.add({"outputs": [OUTPUT]})

    def add(self, config: dict[str, Any]) -> str:
        snapshot = PipelineSnapshot(
            id=uuid.uuid4(),
            workspace_id=WORKSPACE,
            version=1,
            accepting=True,
            config=PipelineConfig.model_validate(config),
        )
        self.by_id[str(snapshot.id)] = snapshot
        return str(snapshot.id)

    def pipeline(self, key: str) -> PipelineSnapshot | None:
        return self.by_id.get(key)

    def filters(self, _workspace: uuid.UUID) -> WorkspaceFilters:
        filters = WorkspaceFilters()
        filters.pipeline_ids.update(
            key for key, snapshot in self.by_id.items() if isinstance(snapshot.config.input, FilterInput)
        )
        return filters

    async def version(self, key: str, _version: int) -> PipelineSnapshot:
        if key not in self.by_id:
            raise ConfigUnavailableError("The manager did not answer.")
        return self.by_id[key]

    def count(self, pipeline: str, event: str) -> None:
        self.counts[pipeline, event] += 1

    def error(self, *_: object, **__: object) -> None: ...


def handler(known: Known) -> FilteringHandler:
    services: Any = LaneServices(known, known, None, 1, lambda _: 0)  # type: ignore[arg-type]
    return FilteringHandler(services)


def message(pipeline: str, body: bytes) -> Message:
    index = {INDEX: json.dumps({"country": "BR"})}
    return Message(new_message_id(), pipeline, 1, b"k", body, "application/json", utc_now(), (routing.ADAPTED,), index)


async def filtered(known: Known, body: bytes) -> list[Record]:
    return await handler(known).handle(message(known.publisher, body), Position(0, 0))


def reasons(records: list[Record]) -> dict[str, str | None]:
    """By pipeline; None for a message that goes on."""
    headers = [dict(record.headers) for record in records]
    return {h[PIPELINE].decode(): h[DEAD_REASON].decode() if DEAD_REASON in h else None for h in headers}


async def test_a_message_with_too_many_bytes_for_all_its_subscribers_is_one_dead_letter() -> None:
    known = Known()
    subscribers = [known.add(SUBSCRIBER) for _ in range(70)]
    assert reasons(await filtered(known, b'"%s"' % (b"x" * 500_000))) == dict.fromkeys([known.publisher, *subscribers])
    [letter] = await filtered(known, b'"%s"' % (b"x" * 1_000_000))
    assert letter.topic == routing.DEAD_LETTER
    assert reasons([letter]) == {known.publisher: Reason.TOO_LARGE}
    assert len(letter.value) > 1_000_000


async def test_neighbours_2_an_index_that_is_too_large_is_the_dead_letter_of_its_own_pipeline() -> None:
    known = Known()
    plain = known.add(SUBSCRIBER)
    indexing = known.add(SUBSCRIBER | {"index": [{"name": "text", "path": "text"}]})
    small, large = b'{"text": "a"}', b'{"text": "%s"}' % (b"x" * limits.INDEX_BYTES)
    assert reasons(await filtered(known, small)) == dict.fromkeys([known.publisher, plain, indexing])
    assert not any(event.endswith(".dead") for _, event in known.counts)
    expected = dict.fromkeys([known.publisher, plain]) | {indexing: Reason.TOO_LARGE}
    assert reasons(await filtered(known, large)) == expected
    assert {key: n for key, n in known.counts.items() if key[1].endswith(".dead")} == {(indexing, "filtering.dead"): 1}


async def test_a_redelivered_dead_letter_counts_as_handled_again_whatever_becomes_of_it() -> None:
    known = Known()
    known.add(SUBSCRIBER)
    filtering = handler(known)
    sent = message(known.publisher, b"{}")
    again = replace(sent, extra=sent.extra | {REDELIVERY: "1", REDELIVERY_OUTPUT: ""})
    for broken, dead in ((False, 0), (True, 1)):
        known.counts.clear()
        extra = again.extra | ({INDEX: "[]"} if broken else {})
        await filtering.handle(replace(again, extra=extra), Position(0, 0))
        own = {event: n for (pipeline, event), n in known.counts.items() if pipeline == known.publisher}
        assert (own["filtering.redelivered"], own.get("filtering.dead", 0)) == (1, dead)
    known.counts.clear()
    await filtering.handle(sent, Position(0, 0))
    assert (known.publisher, "filtering.redelivered") not in known.counts


async def test_indexes_of_all_its_subscribers_count() -> None:
    """Each one's headers are written, too: 50 fields may hold the same text."""
    known = Known()
    fields = [{"name": f"text{number}", "path": "text"} for number in range(50)]
    subscribers = [known.add(SUBSCRIBER | {"index": fields}) for _ in range(1200)]
    assert reasons(await filtered(known, b'{"text": "a"}')) == dict.fromkeys([known.publisher, *subscribers])
    records = await filtered(known, b'{"text": "%s"}' % (b"x" * 1250))
    assert reasons(records) == {known.publisher: Reason.TOO_LARGE}


async def test_messages_that_wait_for_their_configuration_make_room_for_others() -> None:
    known = Known()
    filtering = handler(known)
    unknown = str(uuid.uuid4())
    waiting = [
        asyncio.ensure_future(filtering.handle(message(unknown, b"{}"), Position(0, n)))
        for n in range(LANE.window // 2 + 1)
    ]
    await asyncio.sleep(0.05)
    filtering.make_room()
    await asyncio.sleep(0.05)
    assert not any(one.done() for one in waiting)  # nobody's configuration was there so far
    [passed] = await filtering.handle(message(known.publisher, b"{}"), Position(0, 0))
    assert passed.topic == routing.ADAPTED
    filtering.make_room()
    for one in await asyncio.wait_for(asyncio.gather(*waiting), LIMIT_SECONDS):
        [letter] = one
        assert reasons([letter]) == {unknown: Reason.CONFIGURATION_UNAVAILABLE}
        assert DEAD_DUE in dict(letter.headers)
