"""Tasks end when they are cancelled, whatever their clients make of it."""

import asyncio
import contextlib

import pytest

from backend.network import tasks


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_SECONDS", 0.05)


async def test_a_task_that_takes_its_cancellation_for_an_outage_ends() -> None:
    outages = 0

    async def follow() -> None:
        nonlocal outages
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                outages += 1
                if outages > 2:
                    raise

    task = asyncio.create_task(follow())
    await asyncio.sleep(0)
    await tasks.cancel(task)
    assert (task.cancelled(), outages) == (True, 3)


async def test_what_a_task_cleans_up_is_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_SECONDS", 30)
    cleaned = False

    async def work() -> None:
        nonlocal cleaned
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(0.05)
        cleaned = True

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    await tasks.cancel(task)
    assert cleaned


async def test_a_task_may_have_ended_or_failed() -> None:
    async def fail() -> None:
        raise ValueError

    failed, ended = asyncio.create_task(fail()), asyncio.create_task(asyncio.sleep(0))
    await asyncio.wait([failed, ended])
    await tasks.cancel(failed, ended)
    await tasks.cancel()
