"""A real browser, by fixtures that a module imports: for that module alone, since Playwright keeps an event
loop running, which tests with one of their own refuse."""

import shutil
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from backend.runtime.layout import Layout
from backend.runtime.node import FRONTEND
from tests.installation import Installation
from tests.waiting import LIMIT_SECONDS, PATIENCE

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str | None:
    """The machine's own browser, where there is one; else Playwright's."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


expect.set_options(timeout=LIMIT_SECONDS * PATIENCE * 1000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def page(browser: Browser, installation: Installation) -> Iterator[Page]:
    """A page of a person who is not signed in. Fails the test on any error in its console or of the server."""
    log = Layout(installation.var).log / "console.log"
    read = log.stat().st_size
    # Without motion nothing is looked at halfway: a colour that fades from one theme to the other fails on contrast.
    context = browser.new_context(base_url=installation.endpoint("console"), locale="en-US", reduced_motion="reduce")
    opened = context.new_page()
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))

    def note(message: ConsoleMessage) -> None:
        if message.type == "error":
            place = message.location
            faults.append(f"{message.text} ({place['url']}:{place['lineNumber']})")

    opened.on("console", note)
    yield opened
    context.close()
    # The browser also notes every refused request, beginning with that for the session.
    unexpected = [fault for fault in faults if not fault.startswith("Failed to load resource")]
    assert not unexpected, unexpected
    assert "Traceback" not in log.read_bytes()[read:].decode()


def sign_in(page: Page, installation: Installation, username: str = "admin", password: str = "") -> None:
    page.goto("/")
    page.locator("input[autocomplete=username]").fill(username)
    page.locator("input[autocomplete=current-password]").fill(password or installation.password)
    page.locator("button[type=submit]").click()
    expect(page.locator("#content").get_by_role("heading", level=1)).to_be_visible()


def first_load(page: Page) -> int:
    """Bytes of the scripts and styles that a page has loaded since it was opened, as gzip sends them.

    What the browser had in its cache counts, too, as it does for those who come for the first time.
    """
    addresses = page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)")
    names = {path.removeprefix("/static/") for path in (urlsplit(address).path for address in addresses)}
    files = [FRONTEND / "dist" / f"{name}.gz" for name in names]
    return sum(file.stat().st_size for file in files if file.exists())
