"""The delivery engine against a plain model: any order of messages, publishes, redeliveries, copies, failures,
pressure, crashes, drains and outages of Redis, for several pipelines in several workspaces.

Receivers follow a script, so that what has to happen to each message is known in advance. Breakers, rate limits and
holds follow the model's own clock.
"""

import asyncio
import json
import signal
import uuid
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from msgspec.structs import replace

from backend.delivery.engine import DeliveryEngine
from backend.delivery.shares import Window
from backend.domain import routing
from backend.domain.breaker import BreakerPolicy
from backend.domain.connector import RuntimeConnector
from backend.domain.message import (
    DEAD_DUE,
    DEAD_OUTPUT,
    DEAD_REASON,
    REDELIVERY,
    REDELIVERY_OUTPUT,
    Message,
    new_message_id,
    utc_now,
)
from backend.domain.pipeline import OutputConfig, PipelineConfig, PipelineSnapshot
from backend.domain.records import RESOLVED, Record
from backend.manager_api.client import RuntimePipeline
from backend.resilience.gate import Gate
from backend.telemetry.recorder import Recorder
from tests.infra import REDIS_URL, Server
from tests.scripted import RECEIVERS, SECONDS_OF_PEACE, Receiver
from tests.waiting import LIMIT_SECONDS

T = TypeVar("T")

BREAKER_ERRORS = 3
RATE_SECONDS, BURST = 10, 4
BATCH = 3
OUTPUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "broken": {"breaker": {"errors": BREAKER_ERRORS, "window_seconds": 3600, "open_seconds": 900}},
    "limited": {"rate_limit": {"messages": 1, "period_seconds": RATE_SECONDS, "burst": BURST}},
    "batched": {"batch": {"messages": BATCH, "seconds": 60}},
    "atomic": {"batch": {"messages": BATCH, "seconds": 60}},
    "asking": {},
    "asking_batched": {"batch": {"messages": BATCH, "seconds": 60}},
}
WORKSPACES = (0, 0, 1)
"""That of each pipeline."""
ATTEMPTS = 3
COMMIT_SECONDS = 0.005
WINDOW = 16
RECOVERY_SECONDS = 1000
"""After this time, breakers send a probe, rate limits have all of their tokens and holds have ended."""
SOON_SECONDS = 250
"""A hold lasts for some of these."""
FATES = {
    # The outcomes of a message's attempts, and the reason of its dead letter; empty when it is delivered.
    "delivered": (["ok"], ""),
    "delivered late": (["fail", "fail", "ok"], ""),
    "late answer": (["hang", "ok"], ""),
    "refused": (["refuse"], "http_422"),
    "refused late": (["fail", "refuse"], "http_422"),
    "failed": (["fail"], "http_503"),
    "repaired": (["fail"] * ATTEMPTS + ["ok"], "http_503"),
    "hung": (["hang"], "timeout"),
    "exploded": (["explode"], "internal"),
    "no receipt": (["nothing"], "internal"),
    "unprintable": (["unprintable"], "refused"),
    "asked": (["ask", "ok"], "http_429"),
    "asked late": (["fail", "ask", "ok"], "http_429"),
}
ASKING = {"asked", "asked late"}
"""Of the receivers that ask to be left alone; others deliver these messages."""
REASONS = {
    "fail": "http_503",
    "refuse": "http_422",
    "hang": "timeout",
    "explode": "internal",
    "nothing": "internal",
    "unprintable": "refused",
    "ask": "http_429",
}
HELD = {"output_saturated", "breaker_open", "rate_limited", "http_429"}
"""Messages that wait, and say until when: they were not sent, or the receiver said when they may be."""
OF_OTHERS = {
    "batched": {"internal"},
    "atomic": {"internal", "http_503", "timeout", "refused"},
    "asking_batched": {"internal"},
}
"""Why a message may fail for what others of its batch did."""


class Clock:
    """Seconds, which pass when the model says so."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Pipeline:
    id: str
    workspace: str
    clock: Clock
    versions: int = 0

    def receiver(self, output: str) -> Receiver:
        receiver = RECEIVERS[f"{self.id}/{output}"]
        receiver.seconds_of_a_hang = 0.005
        receiver.clock = self.clock
        return receiver


class Commit:
    """That of a message's record: made soon after the message has ended, unless a crash comes before."""

    def __init__(self) -> None:
        self.is_done = False
        self.is_lost = False
        self._ended = asyncio.Event()

    async def ended(self) -> None:
        await self._ended.wait()

    def make(self) -> None:
        self.is_done = not self.is_lost
        self._ended.set()

    def lose(self) -> None:
        self.is_lost = not self.is_done
        self._ended.set()


@dataclass(eq=False)
class Sent:
    """A message on its way, and its fate by output."""

    pipeline: Pipeline
    message: Message
    fates: dict[str, str]
    number: int
    position: str
    redelivered: str = ""
    """The one output that it is redelivered to."""
    was_read_before: bool = False
    is_copy: bool = False
    commit: Commit = field(default_factory=Commit)
    result: asyncio.Future[list[Record]] = field(init=False)

    def was_received(self, output: str) -> bool:
        return self.message.body in self.pipeline.receiver(output).received


class Published:
    """The configuration client's one question, answered from memory; a version's first answer may be late."""

    def __init__(self) -> None:
        self.versions: dict[tuple[str, int], RuntimePipeline] = {}
        self.late: set[tuple[str, int]] = set()

    async def runtime(self, pipeline_id: str, version: int) -> RuntimePipeline:
        if (pipeline_id, version) in self.late:
            await asyncio.sleep(0.01)
            self.late.discard((pipeline_id, version))
        return self.versions[pipeline_id, version]

    def fresh_runtime(self, pipeline_id: str, version: int) -> RuntimePipeline | None:
        return None if (pipeline_id, version) in self.late else self.versions[pipeline_id, version]


class EngineModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = Clock()
        self.began = self.round_began = self.clock.now
        workspaces = [str(uuid.uuid4()) for _ in set(WORKSPACES)]
        self.pipelines = [Pipeline(str(uuid.uuid4()), workspaces[number], self.clock) for number in WORKSPACES]
        self.published = Published()
        self.sent: list[Sent] = []
        self.settled: list[Sent] = []
        self.delivered: set[tuple[str, str]] = set()
        """Messages that an output has delivered, which a copy is not sent to again."""
        self.billed: set[tuple[str, str]] = set()
        self.dead: dict[tuple[str, str], Sent] = {}
        """Dead letters that wait, by message and output."""
        self.set_aside: set[tuple[str, str]] = set()
        """Messages that have become dead letters of an output, and so need not be in order."""
        self.held: dict[tuple[str, str], tuple[float, int]] = {}
        """Until when the receiver of a pipeline's output is left alone, and the attempts that were made until now."""
        self.redis_was_lost = False

    def run(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self.loop.run_until_complete(asyncio.wait_for(awaited(), LIMIT_SECONDS))

    @initialize()
    def start(self) -> None:
        self.engine = self.run(self._started())
        for number in range(len(self.pipelines)):
            self.publish(number, set(OUTPUTS), 4, 4)

    async def _started(self) -> DeliveryEngine:
        config: Any = self.published
        gate = Gate(REDIS_URL, clock=self.clock)
        return DeliveryEngine(config, Recorder(REDIS_URL), gate, BreakerPolicy(errors=1000), Window(WINDOW))

    @rule(
        of=st.integers(0, len(WORKSPACES) - 1),
        names=st.sets(st.sampled_from(sorted(OUTPUTS)), min_size=1),
        queue=st.integers(1, 8),
        concurrency=st.integers(1, 8),
    )
    def publish(self, of: int, names: set[str], queue: int, concurrency: int) -> None:
        pipeline = self.pipelines[of]
        pipeline.versions += 1
        usual = {
            "retry": {"attempts": ATTEMPTS, "initial_seconds": 0.001, "max_seconds": 0.002},
            "timeout_seconds": 1 + pipeline.versions,
            "concurrency": concurrency,
        }
        outputs = []
        for name in sorted(names):
            config = {"name": name, "connector": str(uuid.uuid4()), **usual, **OUTPUTS[name]}
            config["queue"] = max(queue, BATCH) if "batch" in config else queue
            outputs.append(OutputConfig.model_validate(config))
        snapshot = PipelineSnapshot(
            id=uuid.UUID(pipeline.id),
            workspace_id=uuid.UUID(pipeline.workspace),
            version=pipeline.versions,
            accepting=True,
            config=PipelineConfig(outputs=outputs),
        )
        connectors = {
            output.connector: RuntimeConnector(
                type="toy_script",
                connection={"name": f"{pipeline.id}/{output.name}", "atomic": output.name == "atomic"},
            )
            for output in outputs
        }
        version = (pipeline.id, pipeline.versions)
        self.published.versions[version] = RuntimePipeline.of(snapshot, connectors)
        self.published.late.add(version)

    @rule(
        of=st.integers(0, len(WORKSPACES) - 1),
        keys=st.lists(st.sampled_from([b"x", b"y", b"z"]), min_size=1, max_size=8),
        fates=st.lists(st.sampled_from(sorted(FATES)), min_size=1, max_size=5),
        older=st.booleans(),
    )
    def send(self, of: int, keys: list[bytes], fates: list[str], older: bool) -> None:
        """Messages of the newest version, and of the one before among them."""
        pipeline = self.pipelines[of]
        for index, key in enumerate(keys):
            version = max(1, pipeline.versions - (index % 2 if older else 0))
            self._send(pipeline, key, version, fates[index % len(fates) :] + fates[: index % len(fates)])

    @precondition(lambda self: self.settled)
    @rule(choice=st.integers(0, 10_000), again=st.sampled_from(["copy", "reread", "redelivery"]), data=st.data())
    def send_again(self, choice: int, again: str, data: st.DataObject) -> None:
        """A copy from upstream, the same record after a crash, or a dead letter's redelivery."""
        first = self.settled[choice % len(self.settled)]
        if again == "redelivery":
            self._redeliver(first, data.draw(st.sampled_from(sorted(first.fates))))
        else:
            self._send_copy(first, first.position if again == "reread" else f"1:{self._next_number()}")

    @precondition(lambda self: self.sent)
    @rule(last=st.integers(1, 4))
    def repeat(self, last: int) -> None:
        """Copies of messages that are in flight."""
        for first in self.sent[-last:]:
            self._send_copy(first, f"1:{self._next_number()}")

    @precondition(lambda self: self.sent)
    @rule()
    def crash(self) -> None:
        """What comes of everything in flight is lost, unless it is committed. The records are read again."""
        lost = [sent for sent in self.sent if not sent.commit.is_done]
        self.sent = [sent for sent in self.sent if sent.commit.is_done]
        for sent in lost:
            sent.commit.lose()
        self._end(lost)
        for sent in lost:
            self.delivered |= {(sent.message.id, output) for output in sent.fates if sent.was_received(output)}
            self._deliver(
                Sent(
                    sent.pipeline, sent.message, sent.fates, sent.number, sent.position, sent.redelivered, True,
                    sent.is_copy,
                )
            )  # fmt: skip
        self.make_room()

    @rule()
    def wait_a_little(self) -> None:
        self.run(asyncio.sleep(0.005))

    @rule()
    def make_room(self) -> None:
        """Twice, with a measurement of each output's pace between them."""
        self.engine.make_room()
        self.run(asyncio.sleep(0.06))
        self.engine.make_room()

    @rule()
    def settle(self) -> None:
        """Everything in flight ends, and has become of each message what its fate says."""
        if not self.sent:
            return
        for sent, records in zip(self.sent, self._end(self.sent), strict=True):
            for output, fate in sent.fates.items():
                self._check(sent, output, fate, records)
            self._check_resolved(sent, records)
            self._note_committed(sent, records)
        self._check_order()
        self._check_limits()
        self._check_holds()
        self.settled += self.sent
        self.sent = []
        self.round_began = self.clock.now
        self.run(self._turns_have_ended())
        self._check_nothing_is_kept()

    @rule()
    def drain(self) -> None:
        """The task ends without losing anything, and another continues."""
        self.settle()
        self.run(self.engine.close())
        self.engine = self.run(self._started())

    @rule()
    def let_time_pass(self) -> None:
        """Also while messages are in flight."""
        self.clock.now += SOON_SECONDS

    @rule()
    def recover(self) -> None:
        """Whatever a breaker or a limit held back before, the next message is delivered after some time."""
        self.settle()
        self.clock.now += RECOVERY_SECONDS
        for pipeline in self.pipelines:
            self._send(pipeline, b"probe", pipeline.versions, ["delivered"])
        probes = list(self.sent)
        self.settle()
        assert all((probe.message.id, output) in self.billed for probe in probes for output in probe.fates)

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        self.settle()
        self._redeliver_what_was_received()
        self._check_balance()
        self.run(self.engine.close())
        self.loop.close()

    # -- what is sent --------------------------------------------------------------

    def _next_number(self) -> int:
        return len(self.sent) + len(self.settled)

    def _send(self, pipeline: Pipeline, key: bytes, version: int, fates: list[str]) -> None:
        number = self._next_number()
        outputs = [output.name for output in self.published.versions[pipeline.id, version].outputs]
        chosen = {name: fates[index % len(fates)] for index, name in enumerate(outputs)}
        chosen |= {name: "delivered" for name in chosen if chosen[name] in ASKING and not name.startswith("asking")}
        message = Message(new_message_id(), pipeline.id, version, key, b"%d" % number, "text/plain", utc_now(), ())
        self._deliver(Sent(pipeline, message, chosen, number, f"0:{number}"))

    def _send_copy(self, first: Sent, position: str) -> None:
        number = self._next_number()
        self._deliver(
            Sent(first.pipeline, first.message, first.fates, number, position, first.redelivered, is_copy=True)
        )

    def _deliver(self, sent: Sent) -> None:
        for name, fate in sent.fates.items():
            sent.pipeline.receiver(name).script.setdefault(sent.message.body, list(FATES[fate][0]))
        sent.result = self.loop.create_task(self.engine.deliver(sent.message, sent.position, sent.commit))
        sent.result.add_done_callback(lambda _: self.loop.call_later(COMMIT_SECONDS, sent.commit.make))
        self.sent.append(sent)

    def _redeliver(self, first: Sent, output: str) -> None:
        number = self._next_number()
        extra = {REDELIVERY: f"dead-{number}", REDELIVERY_OUTPUT: output}
        message = replace(first.message, extra=extra)
        fates = {output: first.fates[output]}
        self._deliver(Sent(first.pipeline, message, fates, number, f"9:{number}", output, is_copy=True))

    def _redeliver_what_was_received(self) -> None:
        """Dead letters of messages that had been delivered before a crash."""
        while waiting := [key for key, sent in self.dead.items() if sent.was_received(key[1])]:
            self.clock.now += RECOVERY_SECONDS
            for key in waiting[: BURST // 2]:
                self._redeliver(self.dead[key], key[1])
            self.settle()

    def _end(self, sent: list[Sent]) -> list[list[Record]]:
        """What comes of them. Incomplete batches are sent, as when the lane drains."""

        async def ended() -> list[list[Record]]:
            everything = asyncio.gather(*(each.result for each in sent))
            while not everything.done():
                self.engine.flush()
                await asyncio.sleep(0.001)
            return everything.result()

        return self.run(ended())

    # -- the oracle ------------------------------------------------------------------

    def _check(self, sent: Sent, output: str, fate: str, records: list[Record]) -> None:
        """Exactly one outcome at each output: a billing event, a dead letter, or nothing for a copy."""
        events = [json.loads(record.value) for record in _of(records, routing.BILLING)]
        billed = [event for event in events if event["output"] == output]
        dead = [r for r in _of(records, routing.DEAD_LETTER) if dict(r.headers).get(DEAD_OUTPUT) == output.encode()]
        receiver = sent.pipeline.receiver(output)
        assert len(billed) + len(dead) <= 1
        for event in billed:
            assert (event["pipeline_id"], event["workspace_id"]) == (sent.pipeline.id, sent.pipeline.workspace)
        if dead:
            headers = dict(dead[0].headers)
            reason = headers[DEAD_REASON].decode()
            assert reason in self._possible_reasons(sent, output, fate), (reason, output, fate)
            # What failed with a message for whose sake its batch waits is due with it.
            assert (DEAD_DUE in headers) == (reason in HELD) or (output == "asking_batched" and receiver.asked)
            # One that was delivered before a crash is read again, and may not come as far; a copy may come further.
            was_delivered = (sent.message.id, output) in self.delivered or self._is_sent_twice(sent)
            assert receiver.received.count(sent.message.body) == 0 or was_delivered or self.redis_was_lost
        elif billed:
            assert sent.message.body in receiver.received
        else:  # it has been there before: a copy
            assert sent.message.body in receiver.received
            assert (sent.message.id, output) in self.delivered
        if not dead:
            self.delivered.add((sent.message.id, output))
            # The ledger may have lost what it heard shortly before Redis was killed.
            assert receiver.received.count(sent.message.body) == 1 or self.redis_was_lost

    def _possible_reasons(self, sent: Sent, output: str, fate: str) -> set[str]:
        script, reason = FATES[fate]
        possible = {"output_saturated"} | OF_OTHERS.get(output, set())
        if output == "limited" or sent.pipeline.receiver(output).asked:
            possible.add("rate_limited")
        if output == "broken" and sent.pipeline.receiver(output).failures >= BREAKER_ERRORS:
            possible.add("breaker_open")
        if sent.is_copy or sent.was_read_before or output != "plain":
            # A repeated attempt starts where the script has come to; one that waits for its retry may not go on.
            return possible | {REASONS[outcome] for outcome in script if outcome != "ok"}
        return possible | {reason} - {""}

    def _is_sent_twice(self, sent: Sent) -> bool:
        return sum(other.message.id == sent.message.id for other in self.sent) > 1

    def _note_committed(self, sent: Sent, records: list[Record]) -> None:
        """As the sinks of billing events and dead letters do."""
        for record in _of(records, routing.BILLING):
            self.billed.add((sent.message.id, json.loads(record.value)["output"]))
        for record in _of(records, routing.DEAD_LETTER):
            headers = dict(record.headers)
            if RESOLVED in headers:
                self.dead.pop((sent.message.id, sent.redelivered), None)
            else:
                self.dead[sent.message.id, headers[DEAD_OUTPUT].decode()] = sent
                self.set_aside.add((sent.message.id, headers[DEAD_OUTPUT].decode()))

    def _check_balance(self) -> None:
        """Each message was delivered to each output, or is a dead letter there; and what was delivered is billed."""
        accepted = {(sent.message.id, output) for sent in self.settled for output in sent.fates}
        received = {
            (sent.message.id, output) for sent in self.settled for output in sent.fates if sent.was_received(output)
        }
        assert self.billed == received
        assert self.billed | self.dead.keys() == accepted
        assert not self.billed & self.dead.keys()

    @staticmethod
    def _check_resolved(sent: Sent, records: list[Record]) -> None:
        dead = [r for r in _of(records, routing.DEAD_LETTER) if RESOLVED not in dict(r.headers)]
        is_resolved = any(RESOLVED in dict(record.headers) for record in records)
        assert is_resolved == (bool(sent.redelivered) and not dead)

    def _check_order(self) -> None:
        """Of each key, what was first sent in this round first arrived in the order of sending, also after a crash."""
        if self.redis_was_lost:
            return
        first = {(sent.pipeline.id, sent.message.body): sent for sent in self.sent if not sent.is_copy}
        # A rate limit that has tokens again within the round sets messages aside in any order.
        ordered = OUTPUTS.keys() - ({"limited"} if self.round_began != self.clock.now else set())
        for pipeline in self.pipelines:
            for name in ordered:
                bodies = dict.fromkeys(pipeline.receiver(name).received)
                received = [
                    sent
                    for body in bodies
                    if (sent := first.get((pipeline.id, body))) and (sent.message.id, name) not in self.set_aside
                ]
                for key in {sent.message.key for sent in received}:
                    numbers = [sent.number for sent in received if sent.message.key == key]
                    assert numbers == sorted(numbers), (name, key, numbers)

    def _check_limits(self) -> None:
        if self.redis_was_lost:  # each side has tokens of its own then
            return
        most = 1 + BURST + (self.clock.now - self.began) / RATE_SECONDS
        assert all(len(pipeline.receiver("limited").attempted) <= most for pipeline in self.pipelines)

    def _check_holds(self) -> None:
        """A receiver that asked to be left alone gets nothing from the next round on: in that in which it asked,
        others may have been under way."""
        for pipeline in self.pipelines:
            for name in OUTPUTS:
                receiver, key = pipeline.receiver(name), (pipeline.id, name)
                until, before = self.held.get(key, (0.0, 0))
                made = len(receiver.attempted)
                if until > self.clock.now and not self.redis_was_lost:
                    assert made == before, (name, made - before)
                if receiver.asked:
                    self.held[key] = max(until, receiver.asked[-1] + SECONDS_OF_PEACE), made

    async def _turns_have_ended(self) -> None:
        """Messages that were evicted before their turn let go of it one after the other, shortly after the last."""
        while any(len(output._order) for output in self.engine._outputs.values()):
            await asyncio.sleep(0)

    def _check_nothing_is_kept(self) -> None:
        """Neither room, slots, turns nor slots in the window."""
        engine = self.engine
        assert not engine._accepting
        assert engine._window.leaves(int(WINDOW * 0.75) - 1, 0)
        for output in engine._outputs.values():
            assert output.in_flight == 0
            assert output._room.is_empty
            assert output._room.bytes == 0
            assert output._slots.is_empty
            assert not any(client.in_flight for client in output._clients)


def _of(records: list[Record], topic: str) -> list[Record]:
    return [record for record in records if record.topic == topic]


class EngineModelWithoutRedis(EngineModel):
    """The same while Redis is lost and recovers: a copy may be delivered twice then, and nothing else changes."""

    redis: Server
    is_redis_down = False

    @precondition(lambda self: not self.redis_was_lost)
    @rule()
    def lose_redis(self) -> None:
        self.redis_was_lost = self.is_redis_down = True
        self.redis.stop(signal.SIGKILL)

    @precondition(lambda self: self.is_redis_down)
    @rule()
    def restart_redis(self) -> None:
        self.is_redis_down = False
        self.redis.start()

    def teardown(self) -> None:
        if self.is_redis_down:
            self.restart_redis()
        super().teardown()
