"""The console's own journeys, in a real browser."""

import re
from collections.abc import Sequence
from urllib.parse import quote

from aiohttp import web
from playwright.sync_api import Page, expect

from tests.e2e.browser import OF_COLOURS, browser, first_load, page, sign_in, violations
from tests.e2e.test_messages import name
from tests.installation import Installation
from tests.receiver import Receiver, receiver_in_thread
from tests.waiting import wait_until

__all__ = ["browser", "page"]

FIRST_LOAD_BYTES = 300_000
"""What a page may load, compressed by gzip."""
TOOL_BYTES = 480_000
"""The same of pages with a form, a flow or an editor, whose libraries are loaded after the rest of the page."""


def test_the_guide_leads_to_a_message_of_ones_own_that_is_seen_to_arrive(
    page: Page, installation: Installation
) -> None:
    sign_in(page, installation)
    page.get_by_role("link", name="Quick start").click()
    expect(page.get_by_role("heading", name="Your first message")).to_be_focused()
    page.get_by_label("Name of the pipeline").fill(title := name())
    page.get_by_role("button", name="Create and publish").click()
    page.get_by_role("button", name="Create an API key for this command").click()
    expect(page.locator("pre").filter(has_text="Authorization: Bearer hr_")).to_be_visible()
    page.get_by_label("Message (JSON)").fill('{"hello": "world"')
    page.get_by_role("button", name="Send test message").click()
    expect(page.get_by_text("The message is not JSON")).to_be_visible()
    page.get_by_label("Message (JSON)").fill('{"hello": "world"}')
    page.get_by_role("button", name="Send test message").click()
    arrived = page.get_by_role("region", name="Watch it arrive")
    expect(arrived.locator("pre")).to_have_text('{"hello": "world"}')
    expect(arrived.get_by_text("Delivered", exact=True)).to_be_visible()
    arrived.get_by_role("link", name="Open the pipeline").click()
    expect(page.get_by_role("heading", name=title)).to_be_focused()


def test_a_failing_pipeline_is_shown_as_failing_and_helped_from_the_overview(
    page: Page, installation: Installation, inbox: Receiver
) -> None:
    pipeline = installation.publish_pipeline(title := name(), inbox.url)
    installation.create(f"pipelines/{pipeline}/outputs/out/breaker/", {"open": True, "seconds": 3600})
    sign_in(page, installation)
    page.goto("/pipelines")
    expect(page.get_by_role("row").filter(has_text=title)).to_contain_text("Circuit breaker open")
    page.goto(f"/pipelines/{pipeline}")
    expect(page.get_by_text("Circuit breaker open").first).to_be_visible()
    page.goto("/")
    need = page.get_by_role("link", name=title).locator("xpath=ancestor::div[.//button][1]")
    expect(need.get_by_role("timer")).to_contain_text("Next probe in")
    need.get_by_role("button", name="Close circuit breaker").click()
    expect(page.get_by_text("Circuit breaker of out closed")).to_be_visible()
    expect(page.get_by_role("link", name=title)).to_have_count(0)


def test_the_only_admin_cannot_be_removed(page: Page, installation: Installation) -> None:
    sign_in(page, installation)
    page.goto("/access")
    row = page.get_by_role("row").filter(has_text="The only admin")
    expect(row).to_be_visible()
    expect(row.get_by_role("button", name="Remove")).to_have_count(0)


def test_the_sign_in_page_is_light_and_its_files_are_kept(page: Page, installation: Installation) -> None:
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    sizes: list[float] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.goto("/")
    expect(page.get_by_label("Username")).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert sum(sizes) < FIRST_LOAD_BYTES
    script = page.locator("script[src]").first.get_attribute("src")
    headers = page.request.get(str(script)).headers
    assert "immutable" in headers["cache-control"]
    assert headers["content-encoding"] == "br"


def test_a_message_is_found_by_its_id_from_the_palette_with_its_whole_way(
    page: Page, installation: Installation
) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=422, text="no such customer")

    with receiver_in_thread(refuse) as server:
        pipeline = installation.publish_pipeline(title := name(), server.url)
        wait_until(lambda: installation.post(pipeline, {"n": 1})[0] == 202)
        [message] = installation.accepted(pipeline, [{"n": 2}])
        wait_until(lambda: installation.api("GET", f"dead-letters/?message_id={message}")[1]["results"])
        sign_in(page, installation)
        page.keyboard.press("Control+k")
        page.get_by_role("textbox", name="Search pages").fill("find a mess")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Messages", level=1, exact=True)).to_be_visible()
        page.get_by_label("Message ID, key").fill(message)
        page.get_by_role("button", name="Find").click()
        way = page.get_by_role("list", name="History of the message")
        expect(way.get_by_role("listitem").first).to_contain_text("Accepted")
        expect(way).to_contain_text("no such customer")
        expect(way).to_contain_text("Dead letter")
        expect(page.get_by_role("heading", name=title)).to_be_visible()


def test_every_page_is_without_faults_in_both_themes_and_fits_a_narrow_screen(
    page: Page, installation: Installation, inbox: Receiver
) -> None:
    pipeline = installation.publish_pipeline(name(), inbox.url, transforms=[{"type": "set", "path": "a", "value": 1}])
    connector = installation.api("GET", f"pipelines/{pipeline}/")[1]["config"]["outputs"][0]["connector"]
    paths = ["/", "/start", "/pipelines", "/pipelines/new", "/connectors", "/connectors/new/kafka", "/config-files"]
    paths += [f"/pipelines/{pipeline}{tab}" for tab in ("", "/outputs", "/versions", "/edit", "/edit?side=try")]
    paths += [f"/connectors/{connector}/edit", "/messages", "/dead-letters", "/attempts", "/exports", "/collections"]
    paths += ["/usage", "/jobs", "/kafka-proxies", "/alerts", "/access", "/audit", "/sql", "/nowhere"]
    sign_in(page, installation)
    assert [fault for path in paths for fault in faults_of(page, path)] == []


def faults_of(page: Page, path: str) -> list[tuple[str, ...]]:
    """What axe finds on a page, in both themes, whether a narrow screen cuts it, and whether it loads too much."""
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    faults: list[tuple[str, ...]] = []
    rules: Sequence[str]
    for theme, rules in (("light", ()), ("dark", OF_COLOURS)):
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        expect(page.locator(f"html[data-mantine-color-scheme={theme}]")).to_have_count(1)
        faults += [(path, theme, *fault) for fault in violations(page, rules=rules)]
    page.set_viewport_size({"width": 390, "height": 844})
    if (width := page.evaluate("document.documentElement.scrollWidth")) > 390:
        faults.append((path, f"{width} px wide"))
    is_tool = re.search(r"/pipelines/[^/]+$|/edit|/new|/sql", path)
    if (size := first_load(page)) > (TOOL_BYTES if is_tool else FIRST_LOAD_BYTES):
        faults.append((path, f"{size:,} bytes"))
    return faults


def test_a_dead_letter_is_found_and_looked_at_by_the_keyboard_alone(page: Page, installation: Installation) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=422, text="no such customer")

    with receiver_in_thread(refuse) as server:
        pipeline = installation.publish_pipeline(name(), server.url)
        wait_until(lambda: installation.post(pipeline, {"n": 1})[0] == 202)
        wait_until(lambda: installation.api("GET", f"dead-letters/?pipeline={pipeline}")[1]["results"])
    page.goto("/")
    press = page.keyboard.press
    page.get_by_label("Username").focus()
    page.keyboard.type("admin")
    press("Tab")
    page.keyboard.type(installation.password)
    press("Enter")
    expect(page.locator("#content").get_by_role("heading", level=1)).to_be_visible()
    press("Control+k")
    expect(page.get_by_role("textbox", name="Search pages")).to_be_focused()
    page.keyboard.type("dead let")
    press("Enter")
    expect(page.get_by_role("heading", name="Dead letters", level=1)).to_be_focused()
    expect(page.get_by_role("table", name="Dead letters").get_by_role("row").nth(1)).to_be_visible()
    press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Next row")
    press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    press("j")
    press("x")
    expect(page.get_by_role("button", name="Redrive 1")).to_be_visible()
    opener = page.locator("table[data-list] tbody tr:focus-within button")
    expect(opener).to_have_count(1)
    opener.press("Enter")
    drawer = page.get_by_role("dialog")
    expect(drawer).to_contain_text("no such customer")
    press("Escape")
    expect(drawer).to_have_count(0)
    expect(opener).to_be_focused()
    press("/")
    expect(page.locator("input[data-search]")).to_be_focused()


def test_many_pipelines_are_paused_and_resumed_from_the_list(
    page: Page, installation: Installation, inbox: Receiver
) -> None:
    prefix = name()
    pipelines = [installation.publish_pipeline(f"{prefix} {number}", inbox.url) for number in range(3)]
    output = installation.api("GET", f"pipelines/{pipelines[0]}/")[1]["config"]["outputs"][0]
    draft = installation.create("pipelines/", {"name": f"{prefix} draft", "config": {"outputs": [output]}})["id"]

    def paused() -> list[bool]:
        return [installation.api("GET", f"pipelines/{pipeline}/")[1]["paused"] for pipeline in pipelines]

    sign_in(page, installation)
    page.goto(f"/pipelines?search={quote(prefix)}&sort=name")
    boxes = page.get_by_role("checkbox", name=f"Select {prefix}")
    chosen = page.get_by_role("group", name="Selected pipelines")
    expect(boxes).to_have_count(4)
    boxes.nth(0).click()
    boxes.nth(1).click(modifiers=["Shift"])
    chosen.get_by_role("button", name="Pause 2").click()
    dialog = page.get_by_role("dialog", name="Pause 2 pipelines?")
    dialog.get_by_role("button", name="Pause 2").click()
    expect(page.get_by_text("2 pipelines paused")).to_be_visible()
    expect(chosen).to_have_count(0)
    assert paused() == [True, True, False]
    expect(page.get_by_role("row").filter(has_text=f"{prefix} 1")).to_contain_text("Paused")
    # By the keyboard alone: the first row, and all up to the second.
    for key in ("j", "x", "j", "X"):
        page.keyboard.press(key)
    chosen.get_by_role("button", name="Resume 2").press("Enter")
    page.get_by_role("dialog", name="Resume 2 pipelines?").get_by_role("button", name="Resume 2").press("Enter")
    expect(page.get_by_text("2 pipelines resumed")).to_be_visible()
    assert paused() == [False] * 3
    # One that is refused is named, and stops none of the others.
    page.get_by_role("checkbox", name="Select all shown").click()
    assert installation.api("DELETE", f"pipelines/{draft}/")[0] == 204
    chosen.get_by_role("button", name="Pause 4").click()
    dialog = page.get_by_role("dialog", name="Pause 4 pipelines?")
    dialog.get_by_role("button", name="Pause 4").click()
    expect(dialog.get_by_role("listitem")).to_contain_text(f"{prefix} draft: ")
    expect(dialog.get_by_text("1 pipeline was not changed")).to_be_visible()
    expect(dialog.get_by_text("4 of 4")).to_be_visible()
    assert paused() == [True] * 3
