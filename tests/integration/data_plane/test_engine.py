"""The engine: outputs side by side, and what is recorded of each message."""

import asyncio
import itertools
import json
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from backend.connectors.collection import CollectionCollect
from backend.delivery import commits
from backend.delivery.engine import DeliveryEngine
from backend.delivery.shares import Window
from backend.domain import routing
from backend.domain.breaker import BreakerPolicy
from backend.domain.collected import read_collected
from backend.domain.connector import RuntimeConnector
from backend.domain.message import (
    DEAD_DUE,
    DEAD_ERROR,
    DEAD_OUTPUT,
    DEAD_REASON,
    EXPORT_OUTPUT,
    READ_AT,
    REDELIVERY,
    REDELIVERY_OUTPUT,
    Message,
    new_message_id,
    utc_now,
)
from backend.domain.pipeline import OutputConfig, PipelineConfig, PipelineSnapshot
from backend.domain.records import RESOLVED, Record
from backend.manager_api.client import ConfigUnavailableError, RuntimePipeline, UnknownPipelineError
from backend.resilience.gate import Gate
from backend.telemetry.recorder import Recorder
from tests.infra import REDIS_URL, Server
from tests.receiver import receiver
from tests.scripted import RECEIVERS, Receiver
from tests.waiting import LIMIT_SECONDS

WORKSPACE = uuid.uuid4()


class Known:
    """The configuration client's one question, answered from memory."""

    def __init__(self) -> None:
        self.pipelines: dict[tuple[str, int], RuntimePipeline] = {}
        self.missing = False
        self.slow: dict[int, asyncio.Event] = {}
        """Versions whose configuration comes late: once the event is set."""
        self.unavailable: set[int] = set()
        """Versions whose configuration the manager cannot provide."""

    async def runtime(self, pipeline_id: str, version: int) -> RuntimePipeline:
        if version in self.unavailable:
            raise ConfigUnavailableError("The manager did not answer.")
        if version in self.slow:
            await self.slow[version].wait()
        if self.missing:
            raise UnknownPipelineError("There is no such version.")
        return self.pipelines[pipeline_id, version]

    def fresh_runtime(self, pipeline_id: str, version: int) -> RuntimePipeline | None:
        if self.missing or version in self.unavailable or version in self.slow:
            return None
        return self.pipelines[pipeline_id, version]

    def add(self, **urls: str) -> str:
        """A pipeline with an output for each URL."""
        connections = {name: RuntimeConnector(type="http", connection={"url": url}) for name, url in urls.items()}
        return self.publish(str(uuid.uuid4()), 1, connections)

    def publish(self, pipeline: str, version: int, connections: dict[str, RuntimeConnector], **config: Any) -> str:
        """A version of the pipeline, with an output for each connector."""
        config = {"queue": 5, "concurrency": 5, "retry": {"attempts": 1}} | config
        outputs = [
            OutputConfig.model_validate({"name": name, "connector": str(uuid.uuid4()), **config})
            for name in connections
        ]
        snapshot = PipelineSnapshot(
            id=uuid.UUID(pipeline),
            workspace_id=WORKSPACE,
            version=version,
            accepting=True,
            config=PipelineConfig(outputs=outputs),
        )
        self.pipelines[pipeline, version] = RuntimePipeline.of(
            snapshot, {output.connector: connections[output.name] for output in outputs}
        )
        return pipeline


@pytest.fixture
def known() -> Known:
    return Known()


@pytest.fixture
async def engine(redis_server: Server, known: Known) -> AsyncIterator[DeliveryEngine]:
    config: Any = known
    window = Window(messages=40)
    started = DeliveryEngine(config, Recorder(REDIS_URL), Gate(REDIS_URL), BreakerPolicy(errors=1000), window)
    yield started
    await started.close()


def message(pipeline: str, **extra: str) -> Message:
    message_id = new_message_id()
    return Message(message_id, pipeline, 1, message_id.encode(), b"{}", "application/json", utc_now(), (), extra)


def by_topic(records: list[Record], topic: str) -> list[Record]:
    return [record for record in records if record.topic == topic]


async def ok(_: web.Request) -> web.Response:
    return web.Response()


async def refuse(_: web.Request) -> web.Response:
    return web.Response(status=400, text="no")


async def test_each_output_is_billed_or_a_dead_letter_by_itself(engine: DeliveryEngine, known: Known) -> None:
    async with receiver(ok) as good, receiver(refuse) as bad:
        sent = message(known.add(good=good.url, bad=bad.url))
        records = await engine.deliver(sent, "0:1")
    [billed] = by_topic(records, routing.BILLING)
    event = json.loads(billed.value)
    assert (event["message_id"], event["output"], event["bytes"]) == (sent.id, "good", 2)
    assert event["workspace_id"] == str(WORKSPACE)
    [dead] = by_topic(records, routing.DEAD_LETTER)
    headers = dict(dead.headers)
    assert (headers[DEAD_OUTPUT], headers[DEAD_REASON]) == (b"bad", b"http_400")
    failed = [json.loads(record.value) for record in by_topic(records, routing.ATTEMPTS)]
    assert ("bad", "400", "no") in [(a["output"], a["status"], a["response"]) for a in failed]


async def test_a_repeat_is_billed_only_when_it_is_the_same_read(engine: DeliveryEngine, known: Known) -> None:
    async with receiver(ok) as good:
        sent = message(known.add(good=good.url))
        billed = [len(by_topic(await engine.deliver(sent, at), routing.BILLING)) for at in ("0:1", "0:1", "1:7")]
    assert billed == [1, 1, 0]  # the second was never committed, the third came from upstream
    assert len(good.bodies) == 1


async def test_a_delivery_that_was_not_committed_is_billed_when_its_dead_letter_is_redelivered(
    engine: DeliveryEngine, known: Known
) -> None:
    """A record that is read again may become a dead letter without asking whether it was delivered before."""
    async with receiver(ok) as good:
        sent = message(known.add(good=good.url))
        await engine.deliver(sent, "0:1")  # this was not committed
        again = replace(sent, extra={REDELIVERY: "d1", REDELIVERY_OUTPUT: "good"})
        records = await engine.deliver(again, "0:2")
    assert len(by_topic(records, routing.BILLING)) == 1
    assert [dict(r.headers).get(RESOLVED) for r in by_topic(records, routing.DEAD_LETTER)] == [b"d1"]
    assert len(good.bodies) == 1


async def test_a_redelivery_goes_to_its_output_and_is_resolved_when_it_arrives(
    engine: DeliveryEngine, known: Known
) -> None:
    async with receiver(ok) as good, receiver(refuse) as bad:
        pipeline = known.add(good=good.url, bad=bad.url)
        arrived = await engine.deliver(message(pipeline, **{REDELIVERY: "d1", REDELIVERY_OUTPUT: "good"}), "0:1")
        failed = await engine.deliver(message(pipeline, **{REDELIVERY: "d2", REDELIVERY_OUTPUT: "bad"}), "0:2")
    assert [dict(r.headers).get(RESOLVED) for r in by_topic(arrived, routing.DEAD_LETTER)] == [b"d1"]
    [again] = by_topic(failed, routing.DEAD_LETTER)
    assert RESOLVED not in dict(again.headers)
    assert REDELIVERY not in dict(again.headers)
    assert (len(good.bodies), len(bad.bodies)) == (1, 1)
    [gone] = await engine.deliver(message(pipeline, **{REDELIVERY: "d3", REDELIVERY_OUTPUT: "removed"}), "0:3")
    assert dict(gone.headers)[DEAD_REASON] == b"unknown_output"
    counted = {event: n for (_, event, _), n in engine._recorder._counts.items() if event.endswith(("ed", "dead"))}
    assert counted == {
        "output.good.redelivered": 1,
        "output.good.delivered": 1,
        "output.bad.redelivered": 1,
        "output.bad.dead": 1,
        "output.removed.redelivered": 1,
        "output.removed.dead": 1,
    }


async def test_a_slow_output_makes_room_only_when_others_need_it(engine: DeliveryEngine, known: Known) -> None:
    repaired = asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        await repaired.wait()
        return web.Response()

    async with receiver(slow) as hanging, receiver(ok) as good:
        slowly, quickly = known.add(out=hanging.url), known.add(out=good.url)
        sends = [asyncio.ensure_future(engine.deliver(message(slowly), f"0:{n}")) for n in range(30)]
        await hanging.received(5)
        for _ in range(5):
            engine.make_room()
            await asyncio.sleep(0.1)
        assert not any(one.done() for one in sends)  # it is alone, so it may fill the window
        await engine.deliver(message(quickly), "0:99")
        while not any(one.done() for one in sends):
            engine.make_room()
            await asyncio.sleep(0.1)
        repaired.set()
        records = [record for one in await asyncio.gather(*sends) for record in one]
    reasons = [dict(record.headers)[DEAD_REASON] for record in by_topic(records, routing.DEAD_LETTER)]
    assert reasons == [b"output_saturated"] * 25
    assert len(hanging.bodies) == 5


async def test_a_backlog_that_the_task_itself_works_off_is_not_evicted(engine: DeliveryEngine, known: Known) -> None:
    """Every receiver answers at once, but the task has more to do than it can."""
    pipelines = [known.publish(str(uuid.uuid4()), 1, scripted("out")) for _ in range(6)]
    for pipeline in pipelines:
        [output] = known.pipelines[pipeline, 1].outputs
        RECEIVERS[output.connector.connection["name"]].script[b"{}"] = ["work"]
    sends = [
        asyncio.ensure_future(engine.deliver(message(pipeline), f"0:{n}")) for n in range(60) for pipeline in pipelines
    ]
    while not all(one.done() for one in sends):
        engine.make_room()
        await asyncio.sleep(0.05)
    records = [record for one in sends for record in one.result()]
    assert len(by_topic(records, routing.BILLING)) == len(sends)
    assert by_topic(records, routing.DEAD_LETTER) == []


@pytest.mark.parametrize("is_keyed", [True, False], ids=["one key", "many keys"])
@pytest.mark.parametrize("answer", ["unavailable", "none"])
async def test_messages_that_wait_for_their_configuration_make_room_for_others(
    engine: DeliveryEngine, known: Known, is_keyed: bool, answer: str
) -> None:
    """Neither a manager that answers with an error nor one that does not answer holds up others."""
    pipeline = known.publish(str(uuid.uuid4()), 1, scripted("out"))
    known.unavailable, known.slow = ({2}, {}) if answer == "unavailable" else (set(), {2: asyncio.Event()})
    made = [keyed(pipeline, 2, b"%d" % n) if is_keyed else replace(message(pipeline), version=2) for n in range(30)]
    sends = [asyncio.ensure_future(engine.deliver(one, f"0:{n}")) for n, one in enumerate(made)]
    for _ in range(30):
        await asyncio.sleep(0.05)
        engine.make_room()
    assert not any(one.done() for one in sends)  # nobody needs their room
    await engine.deliver(message(known.publish(str(uuid.uuid4()), 1, scripted("out"))), "0:99")
    began = time.time()
    engine.make_room()
    records = [record for one in await asyncio.wait_for(asyncio.gather(*sends), LIMIT_SECONDS) for record in one]
    letters = [dict(record.headers) for record in records]
    assert [letter[DEAD_REASON] for letter in letters] == [b"configuration_unavailable"] * 30
    assert all(began < float(letter[DEAD_DUE]) < began + 60 for letter in letters)
    assert [record.value for record in records] == [one.body for one in made]


async def test_few_messages_that_wait_for_their_configuration_are_delivered_once_it_is_there(
    engine: DeliveryEngine, known: Known
) -> None:
    await engine.deliver(message(known.publish(str(uuid.uuid4()), 1, scripted("out"))), "0:99")
    connector = scripted("out")
    pipeline = known.publish(str(uuid.uuid4()), 2, connector)
    known.slow[2] = asyncio.Event()
    sends = [asyncio.ensure_future(engine.deliver(keyed(pipeline, 2, b"%d" % n), f"0:{n}")) for n in range(10)]
    for _ in range(30):
        await asyncio.sleep(0.05)
        engine.make_room()
    known.slow[2].set()
    records = [record for one in await asyncio.gather(*sends) for record in one]
    assert by_topic(records, routing.DEAD_LETTER) == []
    assert receiver_of(connector["out"]).received == [b"%d" % n for n in range(10)]


def scripted(*names: str) -> dict[str, RuntimeConnector]:
    """Receivers that follow a script, by the outputs' names."""
    return {name: RuntimeConnector(type="toy_script", connection={"name": f"{name}-{uuid.uuid4()}"}) for name in names}


def receiver_of(connector: RuntimeConnector) -> Receiver:
    return RECEIVERS[connector.connection["name"]]


def keyed(pipeline: str, version: int, body: bytes) -> Message:
    return Message(new_message_id(), pipeline, version, b"key", body, "application/json", utc_now(), ())


@pytest.mark.parametrize(
    ("failure", "reason"), [("explode", b"internal"), ("nothing", b"internal"), ("unprintable", b"refused")]
)
async def test_one_outputs_failure_does_not_lose_anothers_result(
    engine: DeliveryEngine, known: Known, failure: str, reason: bytes
) -> None:
    receivers = scripted("bad", "good")
    receiver_of(receivers["bad"]).script[b"{}"] = [failure]
    sent = message(known.publish(str(uuid.uuid4()), 1, receivers, logged_successes=1))
    records = await engine.deliver(sent, "0:1")
    assert [json.loads(record.value)["output"] for record in by_topic(records, routing.BILLING)] == ["good"]
    assert "good" in [json.loads(record.value)["output"] for record in by_topic(records, routing.ATTEMPTS)]
    [dead] = by_topic(records, routing.DEAD_LETTER)
    assert dict(dead.headers)[DEAD_OUTPUT] == b"bad"
    assert dict(dead.headers)[DEAD_REASON] == reason


async def test_a_message_that_waits_for_its_retry_is_followed_by_the_next_versions(
    engine: DeliveryEngine, known: Known
) -> None:
    connector = scripted("out")
    inbox = receiver_of(connector["out"])
    inbox.script[b"a"] = ["fail", "fail", "ok"]
    retry = {"attempts": 5, "initial_seconds": 0.1}
    pipeline = known.publish(str(uuid.uuid4()), 1, connector, retry=retry)
    known.publish(pipeline, 2, connector, retry=retry, timeout_seconds=5)
    first = asyncio.ensure_future(engine.deliver(keyed(pipeline, 1, b"a"), "0:1"))
    while not inbox.attempted:
        await asyncio.sleep(0.01)
    await asyncio.gather(first, *(engine.deliver(keyed(pipeline, 2, body), "0:2") for body in (b"b", b"c")))
    assert inbox.received == [b"a", b"b", b"c"]


class Uncommitted:
    """The commit of a record that a test makes or loses."""

    def __init__(self) -> None:
        self.is_done = False
        self.is_lost = False
        self._ended = asyncio.Event()

    async def ended(self) -> None:
        await self._ended.wait()

    def end(self, *, lost: bool) -> None:
        self.is_done, self.is_lost = not lost, lost
        self._ended.set()


@pytest.mark.parametrize("batch", [{}, {"batch": {"messages": 1}}], ids=["single", "batched"])
@pytest.mark.parametrize("lost", [False, True], ids=["committed", "lost"])
async def test_nothing_overtakes_a_dead_letter_that_is_not_committed(
    engine: DeliveryEngine, known: Known, batch: dict[str, Any], lost: bool
) -> None:
    connector = scripted("out")
    inbox = receiver_of(connector["out"])
    inbox.script[b"failing"] = ["fail", "ok"]
    pipeline = known.publish(str(uuid.uuid4()), 1, connector, **batch)
    commit, next_commit = Uncommitted(), Uncommitted()
    [letter, *_] = by_topic(await engine.deliver(keyed(pipeline, 1, b"failing"), "0:1", commit), routing.DEAD_LETTER)
    assert dict(letter.headers)[DEAD_REASON] == b"http_503"
    later = asyncio.ensure_future(engine.deliver(keyed(pipeline, 1, b"later"), "0:2", next_commit))
    # Another key does not wait, and would come after it.
    await engine.deliver(replace(keyed(pipeline, 1, b"other"), key=b"other"), "0:3")
    assert inbox.received == [b"other"]
    if lost:
        next_commit.end(lost=True)
    commit.end(lost=lost)
    records = await later
    # After a crash both are read again, and the first is delivered.
    assert inbox.received == ([b"other"] if lost else [b"other", b"later"])
    assert bool(by_topic(records, routing.BILLING)) == (not lost)
    assert not by_topic(records, routing.DEAD_LETTER)


async def test_what_the_receiver_rejects_for_good_holds_up_nothing(engine: DeliveryEngine, known: Known) -> None:
    connector = scripted("out")
    inbox = receiver_of(connector["out"])
    inbox.script[b"bad"] = ["refuse"]
    pipeline = known.publish(str(uuid.uuid4()), 1, connector)
    await engine.deliver(keyed(pipeline, 1, b"bad"), "0:1", Uncommitted())
    await engine.deliver(keyed(pipeline, 1, b"later"), "0:2", Uncommitted())
    assert inbox.received == [b"later"]


async def test_a_message_does_not_wait_for_long_for_a_dead_letter_to_be_committed(
    engine: DeliveryEngine, known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "_PATIENCE_SECONDS", 0.05)
    connector = scripted("out")
    receiver_of(connector["out"]).script[b"failing"] = ["fail"]
    pipeline = known.publish(str(uuid.uuid4()), 1, connector)
    await engine.deliver(keyed(pipeline, 1, b"failing"), "0:1", Uncommitted())
    records = await engine.deliver(keyed(pipeline, 1, b"later"), "0:2", Uncommitted())
    [letter] = by_topic(records, routing.DEAD_LETTER)
    assert dict(letter.headers)[DEAD_REASON] == b"output_saturated"
    assert not receiver_of(connector["out"]).received


async def test_order_holds_when_an_older_versions_configuration_comes_late(
    engine: DeliveryEngine, known: Known
) -> None:
    connector = scripted("out")
    pipeline = known.publish(str(uuid.uuid4()), 1, connector)
    known.publish(pipeline, 2, connector, timeout_seconds=5)
    known.slow[1] = asyncio.Event()
    sends = [asyncio.ensure_future(engine.deliver(keyed(pipeline, n, b"%d" % n), f"0:{n}")) for n in (1, 2)]
    # Of another key and sent last: the second would have been delivered by now, too.
    await engine.deliver(replace(keyed(pipeline, 2, b"other"), key=b"other"), "0:3")
    known.slow[1].set()
    await asyncio.gather(*sends)
    assert receiver_of(connector["out"]).received == [b"other", b"1", b"2"]


async def test_order_holds_when_a_version_drops_another_output(engine: DeliveryEngine, known: Known) -> None:
    connectors = scripted("out", "dropped")
    pipeline = known.publish(str(uuid.uuid4()), 1, connectors)
    known.publish(pipeline, 2, {"out": connectors["out"]})
    await asyncio.gather(*(engine.deliver(keyed(pipeline, n, b"%d" % n), f"0:{n}") for n in (1, 2)))
    assert receiver_of(connectors["out"]).received == [b"1", b"2"]


async def test_order_holds_in_batches_behind_a_former_versions_message(engine: DeliveryEngine, known: Known) -> None:
    repaired = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if b"former" in await request.read():
            await repaired.wait()
        return web.Response()

    async with receiver(answer) as inbox:
        connector = {"out": RuntimeConnector(type="http", connection={"url": inbox.url})}
        batch = {"messages": 5, "seconds": 0.01}
        pipeline = known.publish(str(uuid.uuid4()), 1, connector, batch=batch)
        known.publish(pipeline, 2, connector, batch=batch, timeout_seconds=5)
        bodies = [(1, b'"former"'), (2, b'"second"'), (2, b'"third"')]
        sends = [
            asyncio.ensure_future(engine.deliver(keyed(pipeline, version, body), f"0:{body!r}"))
            for version, body in bodies
        ]
        await inbox.received(1)
        # Of another key and sent last: the others would have been delivered by now, too.
        await engine.deliver(replace(keyed(pipeline, 2, b'"other"'), key=b"other"), "0:9")
        repaired.set()
        await asyncio.gather(*sends)
    assert b"".join(inbox.bodies).split() == [b'"former"', b'"other"', b'"second"', b'"third"']


async def test_a_batch_that_cannot_fill_is_not_waited_for(engine: DeliveryEngine, known: Known) -> None:
    """The output has no room for so many messages at the same time."""
    connector = scripted("out")
    batch = {"messages": 40, "seconds": 60}
    pipeline = known.publish(str(uuid.uuid4()), 1, connector, queue=40, batch=batch)
    sends = [asyncio.ensure_future(engine.deliver(message(pipeline), f"0:{n}")) for n in range(100)]
    async with asyncio.timeout(LIMIT_SECONDS):
        while len(receiver_of(connector["out"]).received) <= 100 - 40:
            await asyncio.sleep(0.01)
        while not all(one.done() for one in sends):  # the last of them leave room, so that their batch could fill
            engine.flush()
            await asyncio.sleep(0.01)
    assert len(receiver_of(connector["out"]).received) == 100


def store(known: Known) -> str:
    """A pipeline with an output that stores files."""
    return known.publish(
        str(uuid.uuid4()), 1, {"files": RuntimeConnector(type="toy_store", connection={"folder": "/nowhere"})}
    )


def staged_and_billed(records: list[Record]) -> tuple[int, int]:
    return len(by_topic(records, routing.EXPORT)), len(by_topic(records, routing.BILLING))


async def test_a_message_for_files_is_staged_where_it_is_billed(engine: DeliveryEngine, known: Known) -> None:
    sent = message(store(known))
    records = await engine.deliver(sent, "0:1")
    [staged] = by_topic(records, routing.EXPORT)
    assert (staged.key, staged.value) == (sent.key, sent.body)
    assert dict(staged.headers)[EXPORT_OUTPUT] == b"files"
    assert staged_and_billed(records) == (1, 1)
    # The same record, whose first reading was not committed; then a copy from upstream.
    assert staged_and_billed(await engine.deliver(sent, "0:1")) == (1, 1)
    assert staged_and_billed(await engine.deliver(sent, "0:9")) == (0, 0)


async def test_a_message_for_a_collection_is_handed_over_where_it_is_billed(
    engine: DeliveryEngine, known: Known
) -> None:
    keeping = RuntimeConnector(type="collection", connection={"partitions": 4})
    pipeline = known.publish(str(uuid.uuid4()), 1, {"log": keeping}, options={"key": "{{id}}"})
    sent = replace(message(pipeline), body=b'{"id": "a"}')

    def handed_over(records: list[Record]) -> tuple[int, int]:
        return len(by_topic(records, routing.COLLECTION)), len(by_topic(records, routing.BILLING))

    records = await engine.deliver(sent, "0:1")
    [record] = by_topic(records, routing.COLLECTION)
    collected = read_collected(value=record.value, headers=record.headers)
    assert (collected.value, collected.document.key, collected.document.partitions) == (sent.body, b"a", 4)
    assert record.key == f"{collected.collection}/{collected.document.partition}".encode()
    assert handed_over(records) == (1, 1)
    # The same record, whose first reading was not committed; then a copy from upstream.
    assert handed_over(await engine.deliver(sent, "0:1")) == (1, 1)
    assert handed_over(await engine.deliver(sent, "0:9")) == (0, 0)
    # A message that has no key is a dead letter, and no document.
    unfit = replace(message(pipeline), body=b"{}")
    records = await engine.deliver(unfit, "0:2")
    assert handed_over(records) == (0, 0)
    assert len(by_topic(records, routing.DEAD_LETTER)) == 1


async def test_what_cannot_be_handed_over_is_a_dead_letter_of_its_output(
    engine: DeliveryEngine, known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CollectionCollect, "document", lambda collect, message: None)
    keeping = RuntimeConnector(type="collection", connection={"partitions": 4})
    pipeline = known.publish(str(uuid.uuid4()), 1, {"log": keeping}, options={"key": "{{id}}"})
    [record] = await engine.deliver(replace(message(pipeline), body=b"{}"), "0:1")
    assert record.topic == routing.DEAD_LETTER
    headers = dict(record.headers)
    assert (headers[DEAD_OUTPUT], headers[DEAD_REASON]) == (b"log", b"internal")


async def test_a_connector_that_cannot_be_read_holds_up_no_message_for_files(
    engine: DeliveryEngine, known: Known
) -> None:
    unreadable = RuntimeConnector(type="toy_store", connection={}, error="The secrets cannot be decrypted.")
    pipeline = known.publish(str(uuid.uuid4()), 1, {"files": unreadable})
    assert staged_and_billed(await engine.deliver(message(pipeline), "0:1")) == (1, 1)


async def test_what_was_staged_but_not_committed_is_staged_again_by_its_dead_letter(
    engine: DeliveryEngine, known: Known
) -> None:
    sent = message(store(known))
    await engine.deliver(sent, "0:1")  # this was not committed
    # When the record is read again its version is unknown for a while.
    known.missing = True
    [dead] = by_topic(await engine.deliver(sent, "0:1"), routing.DEAD_LETTER)
    known.missing = False
    letter = Message.from_kafka(key=dead.key, value=dead.value, headers=dead.headers)
    again = replace(letter, extra={READ_AT: letter.extra[READ_AT], REDELIVERY: "d1", REDELIVERY_OUTPUT: "files"})
    assert staged_and_billed(await engine.deliver(again, "0:5")) == (1, 1)
    assert staged_and_billed(await engine.deliver(again, "0:6")) == (0, 1)  # usage counts the second event once


async def test_neighbours_9_retry_after_holds_the_output_in_every_task_and_no_other(
    engine: DeliveryEngine, known: Known
) -> None:
    came: list[float] = []

    async def busy(_: web.Request) -> web.Response:
        came.append(time.monotonic())
        return web.Response(status=429, headers={"Retry-After": "3"}) if len(came) == 1 else web.Response()

    async def calm(_: web.Request) -> web.Response:
        return web.Response()

    config: Any = known
    second = DeliveryEngine(config, Recorder(REDIS_URL), Gate(REDIS_URL), BreakerPolicy(errors=1000), Window(40))
    tasks = itertools.cycle([engine, second])
    letters: list[Record] = []
    sent = 0
    async with receiver(busy) as one, receiver(calm) as other, asyncio.timeout(LIMIT_SECONDS):
        pipeline = known.add(busy=one.url, calm=other.url)
        while len(came) < 2:
            # Several at once, so that some wait for their turn while others are under way.
            task = next(tasks)
            parts = [task.deliver(message(pipeline), f"0:{sent}") for _ in range(4 if came else 1)]
            for records in await asyncio.gather(*parts):
                letters += by_topic(records, routing.DEAD_LETTER)
            sent += len(parts)
            await asyncio.sleep(0.05)
        assert came[1] - came[0] >= 3
        assert len(other.bodies) == sent
        await second.close()
    headers = [dict(letter.headers) for letter in letters]
    assert {one[DEAD_OUTPUT] for one in headers} == {b"busy"}
    assert [one[DEAD_REASON] for one in headers] == [b"http_429"] + [b"rate_limited"] * (len(headers) - 1)
    assert len(headers) > 10
    dues = [float(one[DEAD_DUE]) for one in headers]
    assert max(dues) - min(dues) < 2  # all for the end of the hold
    assert b"The receiver asked to be left alone until" in headers[-1][DEAD_ERROR]
