"""A real browser, by fixtures that a module imports: for that module alone, since Playwright keeps an event
loop running, which tests with one of their own refuse."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from backend.runtime.layout import Layout
from tests.installation import Installation

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def _chromium() -> str | None:
    """The machine's own browser, where there is one; else Playwright's."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


expect.set_options(timeout=30_000)  # the machine also runs the whole platform


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=_chromium(), args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def page(browser: Browser, installation: Installation) -> Iterator[Page]:
    """A page of a person who is not signed in. Fails the test on any error in its console or of the server."""
    log = Layout(installation.var).log / "console.log"
    read = log.stat().st_size
    context = browser.new_context(base_url=installation.endpoint("console"), locale="en-US")
    opened = context.new_page()
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    yield opened
    context.close()
    # The browser also notes every refused request, beginning with that for the session.
    unexpected = [fault for fault in faults if not fault.startswith("Failed to load resource")]
    assert unexpected == []
    assert "Traceback" not in log.read_bytes()[read:].decode()


def sign_in(page: Page, installation: Installation) -> None:
    page.goto("/")
    page.get_by_label("Username").fill("admin")
    page.get_by_role("textbox", name="Password").fill(installation.password)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Pipelines")).to_be_visible()
