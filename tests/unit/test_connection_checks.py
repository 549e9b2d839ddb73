"""Connection tests, whatever a connector does in them."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from backend.apps.connectors.services import connector_check
from backend.apps.workspaces.models import Workspace
from backend.domain import connector as domain
from backend.domain.capabilities import Connection
from backend.domain.connector import CheckFailedError, Connector, connectors
from backend.domain.errors import ConfigError
from backend.domain.masking import MASK
from backend.network import threads
from backend.settings import ROOT
from tests.waiting import LIMIT_SECONDS

SECRET = "s3cret/ with 'quotes'\nand\ttwo lines"
RELEASED = threading.Event()


class Address(Connection):
    """Where it is."""

    host: str = "example.com"
    password: SecretStr = SecretStr(SECRET)

    def hosts(self) -> dict[str, list[str]]:
        return {"host": [self.host]}


class Checked(Connector):
    """A system whose check does what the test says."""

    type = "checked"
    title = "Checked"
    connection_model = Address
    capabilities = ()
    example: dict[str, Any] = {}
    does: Callable[[Address], Awaitable[str]]

    @staticmethod
    async def check(connection: Address) -> str:
        return await Checked.does(connection)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    RELEASED.clear()
    monkeypatch.setitem(connectors._classes, "checked", Checked)
    yield
    RELEASED.set()


@pytest.fixture
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only for checks that hang: a busy machine would cut others, too."""
    monkeypatch.setattr(domain, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr(threads, "_GRACE_SECONDS", 0.2)


def check(monkeypatch: pytest.MonkeyPatch, does: Callable[[Address], Awaitable[str]]) -> str:
    monkeypatch.setattr(Checked, "does", staticmethod(does), raising=False)
    return connector_check(workspace=Workspace(), type="checked", connection={})


def refusal(monkeypatch: pytest.MonkeyPatch, does: Callable[[Address], Awaitable[str]]) -> dict[str, list[str]]:
    with pytest.raises(ConfigError) as refused:
        check(monkeypatch, does)
    return refused.value.errors


async def hangs_in_a_thread(_: Address) -> str:
    await asyncio.to_thread(RELEASED.wait)
    return "Too late."


async def blocks_its_event_loop(_: Address) -> str:
    RELEASED.wait()
    return "Too late."


async def ignores_its_cancellation(_: Address) -> str:
    while not RELEASED.is_set():
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue
    return "Too late."


async def leaves_a_thread_behind(_: Address) -> str:
    asyncio.get_running_loop().run_in_executor(None, RELEASED.wait)
    raise CheckFailedError("The password is wrong.", field="password")


async def works(_: Address) -> str:
    return "Reached."


def test_what_a_check_says_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(monkeypatch, works) == "Reached."


@pytest.mark.usefixtures("short_limits")
@pytest.mark.parametrize("does", [hangs_in_a_thread, blocks_its_event_loop, ignores_its_cancellation])
def test_a_check_that_hangs_is_answered_in_time(
    monkeypatch: pytest.MonkeyPatch, does: Callable[[Address], Awaitable[str]]
) -> None:
    began = time.monotonic()
    [(field, [sentence])] = refusal(monkeypatch, does).items()
    assert time.monotonic() - began < LIMIT_SECONDS
    assert field == "connection.host"
    assert sentence.startswith("No answer within 0.2 seconds")


def test_a_thread_that_a_check_left_behind_does_not_hold_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(monkeypatch, leaves_a_thread_behind) == {"connection.password": ["The password is wrong."]}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyError("tenant"), "KeyError: 'tenant'."),
        (RuntimeError(f"Rejected: {SECRET}."), f"RuntimeError: Rejected: {MASK}."),
        (RuntimeError({"password": SECRET}), f"RuntimeError: {{'password': \"{MASK}\"}}."),
        (OSError("a" * 250 + SECRET + "b" * 100), f"OSError: {'a' * 250}{MASK}"),
        (SystemExit(1), "SystemExit: 1."),
    ],
)
def test_what_a_check_does_not_declare_is_a_sentence_and_logged_without_secrets(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: BaseException, text: str
) -> None:
    async def fails(_: Address) -> str:
        raise error

    [(field, [sentence])] = refusal(monkeypatch, fails).items()
    assert field == "connection"
    assert sentence.startswith("The check failed unexpectedly: ")
    assert sentence.removeprefix("The check failed unexpectedly: ").startswith(text[:-1])
    assert "s3cret" not in sentence + caplog.text
    assert "in fails" in caplog.text
    assert type(error).__name__ in caplog.text


def test_a_process_ends_although_a_check_hangs_and_its_log_says_which() -> None:
    script = """
import asyncio, threading
from backend.network.threads import run_with_limit
async def hang():
    await asyncio.to_thread(threading.Event().wait)
try:
    run_with_limit(hang(), 0.2, "The test")
except TimeoutError:
    print("cut")
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert (done.returncode, done.stdout) == (0, "cut\n"), done.stderr
    assert "The test hangs, and its thread is left behind." in done.stderr
