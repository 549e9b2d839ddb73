"""Whose queue is evicted when the window fills, with a clock of the test's own."""

import asyncio
from collections.abc import Callable

import pytest

from backend.delivery import shares
from backend.delivery.shares import Share, Window, make_room

WINDOW = 2000
STEP = 0.05


class Output:
    """A share that the test works off: ``pace`` messages a second end."""

    def __init__(self, window: Window, queued: int, pace: float) -> None:
        self.share = Share(8, 1 << 20, window)
        self.pace = pace
        self._credit = 0.0
        self.admitted = 0
        self.evicted = 0
        for _ in range(queued):
            self.arrive()

    def arrive(self) -> None:
        waiting = self.share.arrive(1)
        if waiting is None:
            self.admitted += 1
        else:
            waiting.add_done_callback(self._done)

    def _done(self, waiting: asyncio.Future[bool]) -> None:
        if waiting.result():
            self.admitted += 1
        else:
            self.evicted += 1
            self.share.leave(1)

    def step(self) -> None:
        self._credit += self.pace * STEP
        while self._credit >= 1 and self.admitted:
            self._credit -= 1
            self.admitted -= 1
            self.share.end(1)
            self.share.leave(1)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    clock = [0.0]
    monkeypatch.setattr(shares.time, "monotonic", lambda: clock[0])

    async def run(window: Window, outputs: list[Output], seconds: float, *, is_late: bool = False) -> None:
        for _ in range(round(seconds / STEP)):
            clock[0] += STEP
            for output in outputs:
                output.step()
            await asyncio.sleep(0)
            make_room(window, [output.share for output in outputs], is_alone=len(outputs) == 1, is_late=is_late)
            await asyncio.sleep(0)

    return run


async def test_after_an_outage_nobody_is_evicted_for_a_backlog_that_all_have(run: Callable[..., object]) -> None:
    window = Window(WINDOW)
    outputs = [Output(window, 90, pace) for pace in (4, 5, 6, 8, 10, 12, 5, 6, 8, 10, 12, 6, 8, 10, 12, 7, 9, 6, 8, 10)]
    await run(window, outputs, 5)
    assert [output.evicted for output in outputs] == [0] * len(outputs)


async def test_one_that_hangs_is_evicted_after_a_second_also_in_such_a_backlog(run: Callable[..., object]) -> None:
    window = Window(WINDOW)
    hanging = Output(window, 200, 0)
    others = [Output(window, 90, 8) for _ in range(19)]
    await run(window, [hanging, *others], 1.5)
    assert hanging.evicted == 192
    assert not any(output.evicted for output in others)
    for _ in range(200):  # from now on it does not take a second
        hanging.arrive()
    await run(window, [hanging, *others], 2 * STEP)
    assert hanging.evicted > 300


async def test_a_receiver_that_is_slow_for_what_it_gets_is_evicted(run: Callable[..., object]) -> None:
    """Though it takes more than all the others get."""
    window = Window(WINDOW)
    slow = Output(window, 1600, 50)
    others = [Output(window, 0, 100) for _ in range(20)]
    await run(window, [slow, *others], 2)
    assert slow.evicted > 1400


async def test_where_most_hang_those_that_do_are_evicted(run: Callable[..., object]) -> None:
    window = Window(WINDOW)
    hanging = [Output(window, 400, 0) for _ in range(4)]
    good = Output(window, 10, 100)
    await run(window, [*hanging, good], 4)
    assert [output.evicted for output in hanging] == [392] * 4
    assert good.evicted == 0


async def test_a_busy_task_evicts_nobody_for_what_all_have(
    run: Callable[..., object],
) -> None:
    """Of each output hardly a message ends in a second, some by chance fewer than others."""
    window = Window(WINDOW)
    outputs = [Output(window, 10, 0.2 if number % 10 == 0 else 0.6) for number in range(180)]
    await run(window, outputs, 8, is_late=True)
    assert not any(output.evicted for output in outputs)


async def test_one_that_hangs_beside_them_is_evicted(run: Callable[..., object]) -> None:
    window = Window(WINDOW)
    hanging = Output(window, 60, 0)
    outputs = [Output(window, 10, 0.2 if number % 10 == 0 else 0.6) for number in range(180)]
    await run(window, [hanging, *outputs], 4, is_late=True)
    assert hanging.evicted == 52
    assert not any(output.evicted for output in outputs)


async def test_where_most_hang_those_that_do_are_evicted_also_by_a_busy_task(run: Callable[..., object]) -> None:
    window = Window(WINDOW)
    hanging = [Output(window, 400, 0) for _ in range(4)]
    good = Output(window, 10, 2)
    await run(window, [*hanging, good], 11, is_late=True)
    assert [output.evicted for output in hanging] == [392] * 4
    assert good.evicted == 0


async def test_a_task_that_was_stopped_takes_nobody_for_stuck(
    run: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    window = Window(WINDOW)
    outputs = [Output(window, 300, 20) for _ in range(4)]
    await run(window, outputs, 1)
    stopped_at = shares.time.monotonic()
    monkeypatch.setattr(shares.time, "monotonic", lambda: stopped_at + 60)
    make_room(window, [output.share for output in outputs], is_alone=False, is_late=False)
    await asyncio.sleep(0)
    assert not any(output.evicted for output in outputs)


async def test_where_all_stand_still_and_go_on_nobody_is_evicted(run: Callable[..., object]) -> None:
    """As when the machine or its network stalls; afterwards some are slower than others."""
    window = Window(WINDOW)
    outputs = [Output(window, 10 + number % 3, 0) for number in range(180)]
    await run(window, outputs, 8)
    for number, output in enumerate(outputs):
        output.pace = 2 + number % 5
    for _ in range(100):
        await run(window, outputs, STEP)
        for output in outputs:
            while output.share.in_flight < 11:
                output.arrive()
    assert not any(output.evicted for output in outputs)


async def test_where_all_stand_still_for_long_others_get_their_room(run: Callable[..., object]) -> None:
    window = Window(WINDOW)
    outputs = [Output(window, 11, 0) for _ in range(180)]
    await run(window, outputs, 11)
    assert [output.evicted for output in outputs] == [3] * 180


async def test_receivers_that_are_slow_together_are_not_evicted(run: Callable[..., object]) -> None:
    """Of each output hardly a message ends in a second, of some none in three."""
    window = Window(WINDOW)
    outputs = [Output(window, 11, 0.2 if number % 10 == 0 else 0.6) for number in range(180)]
    await run(window, outputs, 8)
    assert not any(output.evicted for output in outputs)


async def test_many_that_hang_are_evicted_where_more_do_not(run: Callable[..., object]) -> None:
    window = Window(WINDOW)
    hanging = [Output(window, 90, 0) for _ in range(20)]
    idle = [Output(window, 0, 10) for _ in range(180)]
    await run(window, [*hanging, *idle], 2)
    assert [output.evicted for output in hanging] == [82] * 20
