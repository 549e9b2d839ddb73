"""Messages that became dead letters, whose commits later ones of their keys wait for."""

import asyncio

import pytest

from backend.delivery import commits
from backend.delivery.commits import COMMITTED, SetAside


class _Commit:
    def __init__(self) -> None:
        self.is_lost = False
        self._done = asyncio.Event()

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def end(self) -> None:
        self._done.set()

    async def ended(self) -> None:
        await self._done.wait()


async def test_commits_of_many_keys_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "_PATIENCE_SECONDS", 0.2)
    set_aside = SetAside()
    made = {number: _Commit() for number in range(1000)}
    for number, commit in made.items():
        set_aside.add(number, commit)
    set_aside.add("done", COMMITTED)
    waiting = asyncio.create_task(set_aside.uncommitted([*made, "done", "unknown"]))
    await asyncio.sleep(0)
    for number in range(0, 1000, 2):
        made[number].end()
    assert set(await waiting) == set(range(1, 1000, 2))


async def test_nobody_waits_longer_than_the_commits_take() -> None:
    set_aside, commit = SetAside(), _Commit()
    set_aside.add("key", commit)
    waiting = asyncio.create_task(set_aside.uncommitted(["key"]))
    await asyncio.sleep(0)
    commit.end()
    assert not await waiting
    assert len(set_aside) == 0
