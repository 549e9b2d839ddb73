import asyncio
from typing import Any

import pytest

from backend.domain.message import Message, new_message_id, utc_now
from backend.manager_api import waiting
from backend.manager_api.client import ConfigUnavailableError, UnknownPipelineError
from backend.manager_api.waiting import WaitingConfig


class Config:
    """Cannot be asked until ``available`` is set."""

    def __init__(self) -> None:
        self.available = asyncio.Event()

    async def runtime(self, pipeline_id: str, version: int) -> Any:
        if not self.available.is_set():
            raise ConfigUnavailableError("The manager did not answer.")
        if pipeline_id == "unknown":
            raise UnknownPipelineError
        return pipeline_id, version

    version = runtime

    def fresh_runtime(self, pipeline_id: str, version: int) -> Any:
        return (pipeline_id, version) if self.available.is_set() else None


class Recorder:
    def __init__(self) -> None:
        self.errors: list[tuple[str, str, str]] = []

    def error(self, pipeline_id: str, *, stage: str, reason: str, message: str, message_id: str) -> None:
        self.errors.append((pipeline_id, stage, reason))


def message(pipeline_id: str) -> Message:
    return Message(
        id=new_message_id(),
        pipeline_id=pipeline_id,
        version=3,
        key=b"",
        body=b"{}",
        content_type="application/json",
        received_at=utc_now(),
        slip=(),
    )


async def test_it_is_waited_for_and_noted_once_for_each_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_RETRY_SECONDS", 0.01)
    config, recorder = Config(), Recorder()
    stage = WaitingConfig(config, recorder, "a stage")  # type: ignore[arg-type]
    requests = [stage.runtime(message("a")), stage.version(message("a")), stage.runtime(message("b"))]
    waited = asyncio.gather(*requests)
    await asyncio.sleep(0.1)
    assert not waited.done()
    config.available.set()
    assert await waited == [("a", 3), ("a", 3), ("b", 3)]
    noted = [("a", "a stage", "configuration_unavailable"), ("b", "a stage", "configuration_unavailable")]
    assert recorder.errors == noted
    config.available.clear()
    again = asyncio.create_task(stage.runtime(message("a")))
    await asyncio.sleep(0.05)
    config.available.set()
    await again
    assert recorder.errors == [*noted, noted[0]]


async def test_a_pipeline_that_is_deleted_while_it_is_waited_for_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_RETRY_SECONDS", 0.01)
    config, recorder = Config(), Recorder()
    stage = WaitingConfig(config, recorder, "a stage")  # type: ignore[arg-type]
    waited = asyncio.create_task(stage.version(message("unknown")))
    while not recorder.errors:
        await asyncio.sleep(0)
    assert stage._unavailable == {"unknown"}
    config.available.set()
    with pytest.raises(UnknownPipelineError):
        await waited
    assert not stage._unavailable | stage._waiting.keys()


async def test_what_does_not_exist_is_not_waited_for() -> None:
    config = Config()
    config.available.set()
    with pytest.raises(UnknownPipelineError):
        await WaitingConfig(config, Recorder(), "a stage").version(message("unknown"))  # type: ignore[arg-type]


async def test_what_is_there_ends_the_outage_of_its_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_RETRY_SECONDS", 0.01)
    config, recorder = Config(), Recorder()
    stage = WaitingConfig(config, recorder, "a stage")  # type: ignore[arg-type]
    waited = asyncio.create_task(stage.runtime(message("a")))
    while not recorder.errors:
        await asyncio.sleep(0)
    assert stage.runtime_now(message("a")) is None
    [queue] = stage.queues()
    assert queue.stuck_seconds == 0  # nobody has been served
    config.available.set()
    assert stage.runtime_now(message("b")) == ("b", 3)
    [queue] = stage.queues()
    assert queue.stuck_seconds > 0
    assert stage.runtime_now(message("a")) == ("a", 3)
    assert stage._unavailable == set()
    await waited
