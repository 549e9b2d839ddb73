"""The connection between the driver and a lane task."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from spark_jobs.streaming import stop_channel
from spark_jobs.streaming.pulse import Pulse
from spark_jobs.streaming.stop_channel import Address, StopChannel, watched
from tests.waiting import LIMIT_SECONDS, wait_until_async

THREADS = ("stop-channel", "slot-reports")
TOKEN = SecretStr("the installation's")


@asynccontextmanager
async def opened() -> AsyncIterator[StopChannel]:
    channel = StopChannel("127.0.0.1", TOKEN)
    yield channel
    channel.stop()
    channel.close()


def started(
    channel: StopChannel | Address, slot: int = 0, token: SecretStr = TOKEN, **options: Any
) -> asyncio.Task[None]:
    address = channel.address if isinstance(channel, StopChannel) else channel

    async def run() -> None:
        await (await watched(address, token, slot, **options))

    return asyncio.create_task(run())


async def reported(channel: StopChannel, slot: int = 0) -> None:
    async def is_there() -> bool:
        return channel.report(slot) is not None

    await wait_until_async(is_there)


async def forgotten(channel: StopChannel, slot: int = 0) -> None:
    async def is_gone() -> bool:
        return channel.report(slot) is None

    await wait_until_async(is_gone)


async def ended(task: asyncio.Task[None]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        await task


async def test_a_task_reports_its_progress_until_it_is_stopped() -> None:
    progress: dict[str, Any] = {"polled": 0.5, "losses": [(1, 100, 50)]}
    async with opened() as channel:
        task = started(channel, 3, progress=lambda: progress)
        await reported(channel, 3)
        report = channel.report(3)
        assert report is not None
        assert report.progress["polled"] == 0.5
        assert report.age < 2
        assert channel.take_losses() == {(1, 100, 50)}
        assert channel.take_losses() == set()
        channel.stop()
        await ended(task)


async def test_a_task_begins_once_the_driver_would_notice_that_it_hangs() -> None:
    async with opened() as channel:
        task = await watched(channel.address, TOKEN)
        # The process hangs, and its loop does nothing more.
        deadline = time.monotonic() + LIMIT_SECONDS
        while channel.report(0) is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        task.cancel()


async def test_a_task_that_connects_later_is_stopped_as_well() -> None:
    async with opened() as channel:
        channel.stop()
        await ended(started(channel))


async def test_the_report_of_a_task_that_has_ended_is_forgotten() -> None:
    async with opened() as channel:
        task = started(channel)
        await reported(channel)
        task.cancel()
        await forgotten(channel)


async def test_a_lost_connection_stops_no_task() -> None:
    async with opened() as channel:
        task = started(channel)
        await reported(channel)
        [lost] = channel._connections
        stop_channel._shut_down(lost)

        async def is_connected_again() -> bool:
            return lost not in channel._connections and channel.report(0) is not None

        await wait_until_async(is_connected_again)
        assert not task.done()
        channel.stop()
        await ended(task)


async def test_a_task_does_not_outlive_its_driver_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_channel, "_UNREACHABLE_SECONDS", 2.0)
    async with opened() as channel:
        task = started(channel)
        await reported(channel)
        channel.close()
        await ended(task)


async def test_only_tasks_with_the_token_are_heard(caplog: pytest.LogCaptureFixture) -> None:
    async with opened() as channel:
        task = started(channel, token=SecretStr("another's"))

        async def is_refused() -> bool:
            return "is refused" in caplog.text

        await wait_until_async(is_refused)
        assert channel.report(0) is None
        assert not channel._connections
        task.cancel()


async def test_only_a_driver_with_the_token_is_obeyed() -> None:
    connections = 0

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.write(b"challenge\n")
        await reader.readline()
        writer.write(b"proof\nstop\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(pretend, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()[:2]
    task = started(address)

    async def has_come_again() -> bool:
        return connections > 1

    await wait_until_async(has_come_again)
    assert not task.done()
    task.cancel()
    server.close()


async def test_no_thread_outlives_a_closed_channel() -> None:
    before = set(threading.enumerate())

    async def only_those_of_before() -> bool:
        return not {thread for thread in set(threading.enumerate()) - before if thread.name in THREADS}

    async with opened() as channel:
        task = started(channel)
        await reported(channel)
        assert not await only_those_of_before()
        channel.stop()
        await ended(task)
    await wait_until_async(only_those_of_before)


def test_a_transaction_that_lasts_is_told_from_many_short_ones() -> None:
    committing = [True]
    pulse = Pulse(lambda: committing[0], lambda: None)
    pulse.report()
    pulse.committed()
    first = pulse.report()["committing"]
    pulse._waiting_since = (1, pulse._waiting_since[1] - 90)  # type: ignore[index]
    assert first == 0
    assert pulse.report()["committing"] == 90
    pulse.committed()
    assert pulse.report()["committing"] == 0
