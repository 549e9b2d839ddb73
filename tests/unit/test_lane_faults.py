"""What a lane makes of a message that ends its worker, or does worse than to raise an error. No message is read from
Kafka here, and none is committed."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from backend.apps.deliveries.redelivery import REDELIVERED_STAGES
from backend.domain import message as names
from backend.domain.message import Message, new_message_id, utc_now
from backend.domain.reasons import Reason
from backend.domain.records import Record
from backend.domain.stages import ADAPTING_SLOW, STAGES, Form, Stage
from backend.settings import KafkaSettings, Settings
from spark_jobs.streaming import lane_task, worker_deaths
from spark_jobs.streaming.lane import Handler, Lane, Position
from spark_jobs.streaming.window import Progress
from spark_jobs.streaming.worker_deaths import Deaths, RecordId

TOPIC = "firehose_transformer"
PARTITION = 3


class KafkaRecord:
    """A record as the client reads it."""

    def __init__(self, offset: int, message: Message) -> None:
        self._offset = offset
        self._message = message

    def partition(self) -> int:
        return PARTITION

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return self._message.key

    def value(self) -> bytes:
        return self._message.body

    def headers(self) -> list[tuple[str, bytes]]:
        return self._message.headers()

    def __len__(self) -> int:
        return len(self._message.body)


class Doing(Handler):
    """Does what the test says, and notes which records it has begun."""

    def __init__(self, do: Callable[[], Any], waits: bool) -> None:
        self.begun: list[int] = []
        self._do = do
        self._waits = waits

    def handle_now(self, message: Message, position: Position) -> list[Record] | None:
        if self._waits:
            return None
        return self._done(message, position)

    async def handle(self, message: Message, position: Position) -> list[Record]:
        await asyncio.sleep(0)
        return self._done(message, position)

    def _done(self, message: Message, position: Position) -> list[Record]:
        self.begun.append(position.offset)
        assert worker_deaths.own_cell().executing() == RecordId(TOPIC, PARTITION, position.offset)
        if message.body == b"hostile":
            self._do()
        return [Record.of("next", message)]


def message_of(body: bytes, **extra: str) -> Message:
    return Message(new_message_id(), str(uuid.uuid4()), 1, b"key", body, "text/plain", utc_now(), ("next",), extra)


STAGE = Stage("test", Form.LANE, priority=1, topic=TOPIC)


class Counted:
    """A recorder that keeps what it counts."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()

    def count(self, _pipeline: str, event: str) -> None:
        self.events[event] += 1


async def handled(
    handler: Handler, *messages: Message, stage: Stage = STAGE, recorder: Counted | None = None
) -> list[Record]:
    """What a lane with this handler makes of the messages, which are read from offset 4710 on."""
    environment = Settings(kafka=KafkaSettings(bootstrap_servers="127.0.0.1:9"))
    task = lane_task._LaneTask(Lane(stage, lambda _: handler, commit_seconds=0.0), environment, 0, 1)
    task._loop, task._handler = asyncio.get_running_loop(), handler
    task._recorder = recorder or Counted()  # type: ignore[assignment]
    task._commits = lane_task._Changes()
    task._in_flight.assign(PARTITION, Progress((), 4710), 4710)
    records: list[Any] = [KafkaRecord(4710 + number, message) for number, message in enumerate(messages)]
    accepted, _ = task._in_flight.add(records)
    task._start(accepted)
    while not all(entry.records is not None for _, _, entry in accepted):
        await asyncio.sleep(0.01)
    task._reader._consumer.close()
    assert worker_deaths.own_cell().executing() is None
    return [record for _, _, entry in accepted for record in entry.records or []]


def cause_of(letter: Record) -> tuple[str, str]:
    headers = dict(letter.headers)
    return headers[names.DEAD_REASON].decode(), headers[names.DEAD_ERROR].decode()


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets this worker know of records that others have ended at."""

    def know(**deaths: Deaths) -> None:
        known = {RecordId(TOPIC, PARTITION, int(offset.removeprefix("at_"))): died for offset, died in deaths.items()}
        monkeypatch.setattr(worker_deaths._workers, "_deaths", known)

    return know


@pytest.mark.parametrize("waits", [False, True])
async def test_neighbours_4_a_record_that_ended_two_workers_is_not_handled_again(
    deadly: Callable[..., None], waits: bool
) -> None:
    deadly(at_4711=Deaths(2, -11), at_4712=Deaths(1, -9), at_4713=Deaths(3, 7))
    handler = Doing(lambda: None, waits)
    sent = [message_of(b"x" * 10_001) for _ in range(5)]
    first, letter, third, other_letter, last = await handled(handler, *sent)
    assert handler.begun == [4710, 4712, 4714]
    assert [first, third, last] == [Record.of("next", sent[n]) for n in (0, 2, 4)]
    reason, text = cause_of(letter)
    assert reason == Reason.ENDED_WORKER
    assert text.startswith(
        "The message ended the process that handled it twice (killed by SIGSEGV, exit status -11). It was read at "
        "firehose_transformer/3@4711 and has 10,001 bytes. "
    )
    assert cause_of(other_letter)[1].startswith(
        "The message ended the process that handled it 3 times (exit status 7). "
    )
    assert letter.value == sent[1].body
    assert letter.key == sent[1].key


async def test_neighbours_4_one_that_was_redelivered_is_the_same_dead_letter_still(deadly: Callable[..., None]) -> None:
    deadly(at_4710=Deaths(2, -6))
    marks = {names.REDELIVERY: str(uuid.uuid4()), names.REDELIVERY_OUTPUT: "out"}
    recorder = Counted()
    [letter] = await handled(Doing(lambda: None, False), message_of(b"x", **marks), recorder=recorder)
    headers = dict(letter.headers)
    assert headers[names.DEAD_OUTPUT] == b"out"
    assert not headers.keys() & marks.keys()
    assert names.DEAD_DUE not in headers
    assert recorder.events == {"output.out.dead": 1, "output.out.redelivered": 1}


async def test_neighbours_4_the_slow_lanes_dead_letters_can_be_redelivered(deadly: Callable[..., None]) -> None:
    deadly(at_4710=Deaths(2, -6))
    stage = replace(ADAPTING_SLOW, topic=TOPIC)
    recorder = Counted()
    [letter] = await handled(Doing(lambda: None, False), message_of(b"x"), stage=stage, recorder=recorder)
    assert recorder.events == {"adapting.dead": 1}
    assert dict(letter.headers)[names.DEAD_STAGE].decode() in REDELIVERED_STAGES
    assert all(one.redelivers or one.dead_as for one in STAGES if one.form is Form.LANE)


def eat() -> None:
    eaten = [bytearray(1000)]
    raise MemoryError(len(eaten))


class Panic(BaseException):
    """As a library in Rust raises it."""


def exit_with_zero() -> None:
    raise SystemExit(0)


def panic() -> None:
    raise Panic("s3cret")


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    ("do", "reason", "says"),
    [
        (eat, Reason.OUT_OF_MEMORY, "(a worker may have 2,048 MiB, HEADRACE_LANE_MEMORY_BYTES)"),
        (exit_with_zero, Reason.INTERNAL, "(SystemExit)"),
        (panic, Reason.INTERNAL, "(Panic)"),
    ],
)
async def test_neighbours_4_what_is_raised_ends_neither_the_worker_nor_the_stage(
    do: Callable[[], Any], reason: Reason, says: str, waits: bool
) -> None:
    sent = [message_of(b"before"), message_of(b"hostile"), message_of(b"behind")]
    before, letter, behind = await handled(Doing(do, waits), *sent)
    assert [before, behind] == [Record.of("next", sent[0]), Record.of("next", sent[2])]
    assert cause_of(letter)[0] == reason
    assert says in cause_of(letter)[1]
    assert "s3cret" not in cause_of(letter)[1]
    assert letter.value == b"hostile"


async def test_neighbours_4_what_a_message_ate_is_given_back_before_anything_else() -> None:
    error = None
    held: list[Any] = []

    def eat_much() -> None:
        eaten = Eaten()
        held.append(eaten.is_held)
        raise MemoryError

    class Eaten:
        def __init__(self) -> None:
            self.is_held = [True]

        def __del__(self) -> None:
            self.is_held[0] = False

    class Logging(Doing):
        def handle_now(self, message: Message, position: Position) -> list[Record] | None:
            nonlocal error
            try:
                return super().handle_now(message, position)
            except MemoryError as caught:
                error = caught
                raise

    await handled(Logging(eat_much, False), message_of(b"hostile"))
    assert isinstance(error, MemoryError)
    assert held == [[False]]
