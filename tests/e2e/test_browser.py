"""A person's first minutes, in a real browser."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.e2e.test_messages import name
from tests.installation import Installation
from tests.receiver import Receiver

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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # For this module alone: Playwright keeps an event loop running, which tests with one of their own refuse.
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=_chromium(), args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def page(browser: Browser, installation: Installation, tmp_path: Path) -> Iterator[Page]:
    """A page of a person who is not signed in. Fails the test on any error in the console."""
    context = browser.new_context(base_url=installation.endpoint("console"), locale="en-US")
    opened = context.new_page()
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    yield opened
    if folder := os.environ.get("HEADRACE_SCREENSHOTS"):
        opened.screenshot(path=Path(folder) / "last.png", full_page=True)
    context.close()
    # The session is asked for before anybody signed in.
    unexpected = [fault for fault in faults if not fault.startswith("Failed to load resource")]
    assert unexpected == []


def sign_in(page: Page, installation: Installation) -> None:
    page.goto("/")
    page.get_by_label("User name").fill("admin")
    page.get_by_role("textbox", name="Password").fill(installation.password)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Pipelines")).to_be_visible()


def test_sign_in_make_a_pipeline_by_form_send_a_message_and_see_it_counted(
    page: Page, installation: Installation, inbox: Receiver
) -> None:
    sign_in(page, installation)
    pipeline_name = name()
    connector = installation.create(
        "connectors/", {"name": f"{pipeline_name} receiver", "type": "http", "connection": {"url": inbox.url}}
    )
    page.get_by_role("link", name="New pipeline").first.click()
    page.get_by_role("textbox", name="Name").first.fill(pipeline_name)
    page.locator("#config_outputs_0_name").fill("receiver")
    page.locator("#config_outputs_0_connector").click()
    page.get_by_role("option", name=str(connector["name"])).click()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name=pipeline_name)).to_be_visible()
    page.get_by_role("button", name="Publish version 1").click()
    expect(page.get_by_text("Accepting").first).to_be_visible()
    pipeline = page.url.rstrip("/").rsplit("/", 1)[1]
    assert installation.accepted(pipeline, [{"n": n} for n in range(25)])
    delivered = page.get_by_role("row").filter(has_text="Delivered")
    expect(delivered.get_by_role("cell").last).to_have_text("25", timeout=20_000)
    assert len(inbox.bodies) == 25


def test_a_mistake_in_the_form_is_told_at_its_field(page: Page, installation: Installation) -> None:
    sign_in(page, installation)
    page.goto("/pipelines/new")
    page.get_by_role("textbox", name="Name").first.fill(name())
    page.locator("#config_outputs_0_name").fill("Not A Name")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert").filter(has_text="Please correct these fields")).to_be_visible()
    expect(page.get_by_role("link", name="outputs.0.name")).to_be_visible()


@pytest.mark.parametrize("path", ["/pipelines", "/connectors", "/jobs"])
def test_pages_fit_a_narrow_screen(page: Page, installation: Installation, path: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    sign_in(page, installation)
    page.goto(path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
