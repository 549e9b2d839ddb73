"""Verification of requests, whatever a connector does in it."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import SecretStr

from backend.domain.capabilities import Connection, DeliveryError, Options, VerificationError, Verify
from backend.domain.connector import Connector, RuntimeConnector, connectors
from backend.domain.pipeline import PipelineConfig, PipelineSnapshot
from backend.ingest import verification
from backend.ingest.problems import Problem
from backend.ingest.verification import Verifier
from backend.manager_api.client import RuntimePipeline
from tests.waiting import LIMIT_SECONDS

SECRET = "t0p-secret"
CONNECTOR = UUID(int=1)
RELEASED = threading.Event()


class SharedConnection(Connection):
    """What the sender knows as well."""

    token: SecretStr = SecretStr(SECRET)


class SharedVerify(Verify[SharedConnection, Options]):
    """Does what the test says."""

    does: Callable[["SharedVerify"], None]

    def verify(self, headers: Mapping[str, Sequence[str]], body: bytes) -> None:
        type(self).does(self)


class Shared(Connector):
    """Verifies requests of a test."""

    type = "shared"
    title = "Shared"
    connection_model = SharedConnection
    capabilities = (SharedVerify,)
    example: dict[str, Any] = {}

    @staticmethod
    async def check(connection: SharedConnection) -> str:
        return "Complete."


class Config:
    """Knows the verified pipelines of the test."""

    async def runtime(self, pipeline_id: str, version: int) -> RuntimePipeline:
        return RuntimePipeline.of(
            pipeline(UUID(pipeline_id)), {CONNECTOR: RuntimeConnector(type="shared", connection={})}
        )


def pipeline(id: UUID) -> PipelineSnapshot:
    config = {
        "input": {"type": "http", "verification": {"connector": str(CONNECTOR)}},
        "index": [{"name": "a", "path": "a"}],
    }
    return PipelineSnapshot(
        id=id, workspace_id=UUID(int=2), version=1, accepting=True, config=PipelineConfig.model_validate(config)
    )


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    RELEASED.clear()
    monkeypatch.setitem(connectors._classes, "shared", Shared)
    yield
    RELEASED.set()


@pytest.fixture(params=[True, False], ids=["on the loop", "in a thread"])
def computes_only(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(SharedVerify, "computes_only", request.param)
    return bool(request.param)


def does(monkeypatch: pytest.MonkeyPatch, what: Callable[[SharedVerify], None]) -> None:
    monkeypatch.setattr(SharedVerify, "does", what, raising=False)


def raising(error: BaseException) -> Callable[[SharedVerify], None]:
    def fail(_: SharedVerify) -> None:
        raise error

    return fail


def verifier() -> Verifier:
    return Verifier(Config())  # type: ignore[arg-type]


async def refusal(own: Verifier, id: UUID) -> Problem:
    with pytest.raises(Problem) as refused:
        await own.verify(pipeline(id), {b"a": [b"b"]}, b"{}")
    return refused.value


async def passes(own: Verifier, id: UUID) -> bool:
    with contextlib.suppress(Problem):
        await own.verify(pipeline(id), {}, b"{}")
        return True
    return False


@pytest.mark.usefixtures("computes_only")
async def test_what_verifies_passes_and_what_does_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    own = verifier()
    does(monkeypatch, lambda _: None)
    await own.verify(pipeline(uuid4()), {}, b"{}")
    does(monkeypatch, raising(VerificationError("The token is wrong.")))
    problem = await refusal(own, uuid4())
    assert (problem.status, problem.detail) == (401, "The token is wrong.")


@pytest.mark.usefixtures("computes_only")
@pytest.mark.parametrize(
    "error",
    [
        KeyError(f"no {SECRET}"),
        TimeoutError(),
        StopIteration(),
        DeliveryError("internal", f"With {SECRET}.", retryable=True),
        SystemExit(1),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_a_connector_does_not_declare_is_a_stable_answer_and_logged_without_secrets(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    does(monkeypatch, raising(error))
    problem = await refusal(verifier(), uuid4())
    assert (problem.status, problem.title) == (500, "Verification failed")
    assert problem.detail == (
        "The pipeline's verification failed unexpectedly; its operator finds the cause in the server's log."
    )
    assert "in fail" in caplog.text
    assert SECRET not in caplog.text


async def test_one_that_hangs_takes_neither_the_event_loop_nor_the_neighbours(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(verification, "_SECONDS", 0.2)
    monkeypatch.setattr(verification, "_THREADS", 2)
    own, hanging, neighbour = verifier(), uuid4(), uuid4()
    does(monkeypatch, lambda _: RELEASED.wait() and None)
    began = time.monotonic()
    problems = await asyncio.gather(*(refusal(own, hanging) for _ in range(3)))
    assert time.monotonic() - began < 5
    assert sorted(problem.title for problem in problems) == [
        "Verification busy",
        "Verification unavailable",
        "Verification unavailable",
    ]
    assert {problem.status for problem in problems} == {503}
    assert (await refusal(own, hanging)).title == "Verification busy"
    does(monkeypatch, lambda _: None)
    await own.verify(pipeline(neighbour), {}, b"{}")
    RELEASED.set()
    async with asyncio.timeout(LIMIT_SECONDS):
        while not await passes(own, hanging):
            await asyncio.sleep(0.01)
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2


def test_the_verifications_of_headrace_itself_need_no_thread() -> None:
    verifying = [kind for cls in connectors if (kind := cls.capability(Verify)) is not None]
    assert {kind.__name__ for kind in verifying if not kind.computes_only} == {"SharedVerify"}
