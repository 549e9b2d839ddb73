"""A real browser, by fixtures that a module imports: for that module alone, since Playwright keeps an event
loop running, which tests with one of their own refuse."""

import shutil
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from backend.runtime.layout import Layout
from backend.runtime.node import FRONTEND
from tests.installation import Installation
from tests.waiting import LIMIT_SECONDS, PATIENCE, wait_until

_AXE = FRONTEND / "node_modules/axe-core/axe.min.js"
_AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
OF_COLOURS = ["color-contrast", "link-in-text-block"]
"""The rules of axe that a page may break in one theme alone."""

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
    context.set_default_timeout(LIMIT_SECONDS * PATIENCE * 1000)
    opened = context.new_page()
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))

    def note(message: ConsoleMessage) -> None:
        if message.type == "error":
            place = message.location
            faults.append(f"{message.text} ({place['url']}:{place['lineNumber']})")

    opened.on("console", note)
    requests = Requests(opened)
    yield opened
    _print_state(opened, requests)
    context.close()
    # The browser also notes every refused request, beginning with that for the session.
    unexpected = [fault for fault in faults if not fault.startswith("Failed to load resource")]
    assert not unexpected, unexpected
    assert "Traceback" not in log.read_bytes()[read:].decode()


def _print_state(page: Page, requests: "Requests") -> None:
    """What a failed test's report shows of the page beside the expectation that was not met."""
    if page.is_closed():
        return
    focused = page.evaluate("document.activeElement?.outerHTML.slice(0, 300)")
    print(f"The page was at {page.url}, with the focus on {focused}.")
    print("Unanswered requests:", requests.unanswered() or "none")
    print(page.locator("body").inner_text()[:3000])


def sign_in(page: Page, installation: Installation, username: str = "admin", password: str = "") -> None:
    """Signs in without the form, which would take a second more, and opens the overview."""
    account = {"username": username, "password": password or installation.password}
    page.request.get("/api/v1/session/")
    answer = page.request.post("/api/v1/session/", headers=csrf_headers(page), data=account)
    assert answer.ok, answer.text()
    page.goto("/")
    expect(page.locator("#content").get_by_role("heading", level=1)).to_be_visible()


def csrf_headers(page: Page) -> dict[str, str]:
    """Of a request that changes something, with the token that the console's API has set."""
    token = next(str(cookie.get("value")) for cookie in page.context.cookies() if cookie.get("name") == "csrftoken")
    return {"X-CSRFToken": token, "Referer": page.url}


def sign_in_by_form(page: Page, installation: Installation, username: str = "admin", password: str = "") -> None:
    page.goto("/")
    page.locator("input[autocomplete=username]").fill(username)
    page.locator("input[autocomplete=current-password]").fill(password or installation.password)
    page.locator("button[type=submit]").click()
    expect(page.locator("#content").get_by_role("heading", level=1)).to_be_visible()


def violations(page: Page, most: int = 3, rules: Sequence[str] = ()) -> list[tuple[str, str]]:
    """What axe finds on a page as it is now that does not meet WCAG A and AA, or some of its rules: the rule and the
    element, so many of each rule at most."""
    if not page.evaluate("'axe' in window"):
        # Evaluated by the browser's debugger, which the content security policy allows.
        page.evaluate(_AXE.read_text())
    # What axe finds nothing wrong with is most of its result, and would be taken apart here.
    options = {"runOnly": [*rules] or _AXE_TAGS, "resultTypes": ["violations"]}
    found = page.evaluate("async (options) => (await axe.run(document, options)).violations", options)
    return [(fault["id"], node["html"][:200]) for fault in found for node in fault["nodes"][:most]]


class Requests:
    """The requests of a page that have no answer yet."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._open: set[Request] = set()
        page.on("request", self._begins)
        page.on("requestfinished", self._ends)
        page.on("requestfailed", self._ends)

    def goto(self, path: str) -> None:
        """Goes to a page as a link does in the console, which has to be open: opening it anew takes the browser three
        times as long. A page that does not exist lies between, so that nothing of the former page is taken for it."""
        not_found = self._page.get_by_role("heading", name="Page not found", level=1)
        self._follow("/nowhere")
        expect(not_found).to_be_visible()
        self._follow(path)
        expect(not_found).to_have_count(0)
        self.wait_until_answered()

    def wait_until_answered(self) -> None:
        """Returns once the page is shown and all that it has asked for has come. A page that polls is never without
        requests for long."""
        expect(self._page.get_by_role("heading", level=1).first).to_be_visible()
        wait_until(self._are_all_answered, interval=0)

    def unanswered(self) -> list[str]:
        return [request.url for request in self._open]

    def _follow(self, path: str) -> None:
        self._page.evaluate(
            "path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')) }", path
        )

    def _begins(self, request: Request) -> None:
        self._open.add(request)

    def _ends(self, request: Request) -> None:
        self._open.discard(request)

    def _are_all_answered(self) -> bool:
        self._page.wait_for_timeout(100)  # the events of requests are received meanwhile
        return not self._open


def first_load(page: Page) -> int:
    """Bytes of the scripts and styles that a page has loaded since it was opened, as gzip sends them.

    What the browser had in its cache counts, too, as it does for those who come for the first time.
    """
    addresses = page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)")
    names = {path.removeprefix("/static/") for path in (urlsplit(address).path for address in addresses)}
    files = [FRONTEND / "dist" / f"{name}.gz" for name in names]
    return sum(file.stat().st_size for file in files if file.exists())
