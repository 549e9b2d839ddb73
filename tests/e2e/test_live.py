"""The console's live numbers while the connection to the server is troubled."""

import re
import threading
import time

from playwright.sync_api import Page, WebSocketRoute, expect

from tests.e2e.browser import browser, page, sign_in
from tests.e2e.test_messages import name
from tests.installation import Installation
from tests.receiver import Receiver
from tests.waiting import PATIENCE, wait_until

__all__ = ["browser", "page"]

SILENCE_SECONDS = 5.0
"""After so long without news the console says that its numbers are old. The server sends each second."""


class Relay:
    """Stands between the page's live socket and the server."""

    def __init__(self, page: Page) -> None:
        self.is_frozen = threading.Event()
        """The server's frames are kept back, and the socket stays open."""
        self.is_cut = threading.Event()
        """Each new socket is closed at once."""
        self.opened = 0
        self._sockets: list[WebSocketRoute] = []
        page.route_web_socket(re.compile(r"/ws/live/"), self._open)

    def cut(self) -> None:
        self.is_cut.set()
        for socket in self._sockets:
            socket.close()
        self._sockets.clear()

    def _open(self, socket: WebSocketRoute) -> None:
        self.opened += 1
        if self.is_cut.is_set():
            socket.close()
            return
        self._sockets.append(socket)
        server = socket.connect_to_server()
        server.on_message(lambda frame: None if self.is_frozen.is_set() else socket.send(frame))


def mark(page: Page) -> None:
    """A mark that a reload would remove."""
    page.evaluate("window.hasNotBeenReloaded = true")


def expect_not_reloaded(page: Page) -> None:
    assert page.evaluate("window.hasNotBeenReloaded === true")


def test_a_socket_that_freezes_makes_figures_grey_and_recovers_without_a_reload(
    page: Page, installation: Installation, inbox: Receiver
) -> None:
    pipeline = installation.publish_pipeline(name(), inbox.url)
    wait_until(lambda: installation.post(pipeline, {"n": 0})[0] == 202)
    relay = Relay(page)
    sign_in(page, installation)
    page.goto(f"/pipelines/{pipeline}")
    state = page.locator("header").get_by_role("status")
    figure = page.locator("[data-figure='Incoming rate']")
    expect(state).to_have_text("Live")
    colour = figure.evaluate("element => getComputedStyle(element).color")
    mark(page)
    relay.is_frozen.set()
    began = time.monotonic()
    expect(state).to_contain_text(re.compile(r"Stale since \d"))
    assert time.monotonic() - began < (SILENCE_SECONDS + 1) * PATIENCE
    expect(figure).not_to_have_css("color", colour)
    sockets = relay.opened
    # A socket that stays silent is given up, and another one tried.
    wait_until(lambda: (page.wait_for_timeout(100), relay.opened > sockets)[1])
    relay.is_frozen.clear()
    expect(state).to_have_text("Live")
    expect(figure).to_have_css("color", colour)
    expect_not_reloaded(page)
    # What happened meanwhile is counted, and what happens is seen again.
    installation.accepted(pipeline, [{"n": n} for n in range(1, 4)])
    delivered = page.get_by_role("row").filter(has_text="Delivered")
    expect(delivered.get_by_role("cell").last).to_have_text("4")


def test_pages_come_back_after_a_network_cut_without_a_reload(
    page: Page, installation: Installation, inbox: Receiver
) -> None:
    relay = Relay(page)
    sign_in(page, installation)
    # The scripts of both pages are there before the cut.
    for link, title in (("Pipelines", "Pipelines"), ("Connectors", "Connectors"), ("Pipelines", "Pipelines")):
        page.get_by_role("link", name=link, exact=True).click()
        expect(page.get_by_role("heading", name=title, level=1)).to_be_visible()
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
    state = page.locator("header").get_by_role("status")
    expect(state).to_have_text("Live")
    mark(page)
    page.context.set_offline(True)
    relay.cut()  # an emulated cut leaves open sockets alone
    expect(state).not_to_have_text("Live")
    made = name()
    pipeline = installation.publish_pipeline(made, inbox.url)
    page.get_by_role("link", name="Connectors", exact=True).click()
    expect(page.get_by_role("heading", name="Connectors", level=1)).to_be_visible()
    expect(page.get_by_text(made)).to_have_count(0)
    page.context.set_offline(False)
    relay.is_cut.clear()
    expect(page.get_by_role("table").get_by_text(made)).to_be_visible()
    expect(state).to_have_text("Live")
    page.get_by_role("link", name="Pipelines", exact=True).click()
    # The connector has the same name, and is a link of the page before.
    expect(page.get_by_role("heading", name="Pipelines", level=1)).to_be_visible()
    page.get_by_role("link", name=made).first.click()
    expect(page.get_by_role("heading", name=made)).to_be_visible()
    assert pipeline in page.url
    expect_not_reloaded(page)
