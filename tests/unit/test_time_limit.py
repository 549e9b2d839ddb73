import asyncio
import time

import pytest

from backend.delivery.time_limit import TimeLimit

_SHORT = 0.05


async def _waiting(limit: TimeLimit) -> float:
    """How long it may wait, in seconds."""
    began = time.monotonic()
    with pytest.raises(TimeoutError), limit:
        await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0  # it goes on as if nothing had been cancelled
    await asyncio.sleep(0)
    return time.monotonic() - began


async def test_each_block_has_the_whole_time() -> None:
    limit = TimeLimit(_SHORT)
    tasks = []
    for _ in range(5):
        tasks.append(asyncio.create_task(_waiting(limit)))
        await asyncio.sleep(_SHORT / 4)
    assert min(await asyncio.gather(*tasks)) >= _SHORT
    assert await _waiting(limit) >= _SHORT  # also after all others have ended


async def test_what_ends_in_time_is_left_alone() -> None:
    limit = TimeLimit(_SHORT)
    late = asyncio.create_task(_waiting(limit))
    await asyncio.sleep(0)
    with limit:
        await asyncio.sleep(0)
    await late
    await asyncio.sleep(_SHORT)
    with pytest.raises(KeyError), limit:
        raise KeyError


async def test_a_task_that_somebody_else_cancels_is_cancelled() -> None:
    limit = TimeLimit(60)
    waiting = asyncio.create_task(_waiting(limit))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_task_that_is_cancelled_while_its_time_ends_is_cancelled() -> None:
    limit = TimeLimit(_SHORT)
    caught = asyncio.Event()

    async def slow_to_end() -> None:
        with limit:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                caught.set()
                await asyncio.Event().wait()

    task = asyncio.create_task(slow_to_end())
    await caught.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_that_the_end_of_the_time_leads_to_is_kept() -> None:
    async def failing() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise KeyError from None

    with pytest.raises(KeyError), TimeLimit(_SHORT):
        await failing()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
