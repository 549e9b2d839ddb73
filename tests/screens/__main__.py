"""Pictures of every page of the console, at three widths and in both themes, with data, none, and without answers, and
of its dialogs, drawers and mistakes.

``python -m tests.screens`` starts an installation, fills it and stores the pictures in ``var/screens``; with
``--var`` it uses one that runs already. ``--pages`` takes only those whose names match an expression. When all are
taken, what each page loads is written to ``tests/bench/results/console.md``. Each picture is also looked at by axe, in
both themes; it fails at the end, and lists what does not meet WCAG A and AA or is wider than its window.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from playwright.sync_api import Page, Route, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from backend.runtime.layout import Layout
from backend.settings import ROOT
from tests.e2e.browser import chromium, first_load, sign_in, violations
from tests.installation import Installation, temporary_installation
from tests.screens.data import EMPTY, Data, filled
from tests.screens.states import Words, states

RESULTS = ROOT / "tests/bench/results/console.md"

_WIDTHS = {1440: 900, 768: 1024, 390: 844}
_THEMES = ("light", "dark")
_AXE_WIDTH = 1440


def pages(data: Data) -> dict[str, str]:
    """Addresses by the name of the picture."""
    failing, healthy = f"/pipelines/{data.failing}", f"/pipelines/{data.healthy}"
    return {
        "overview": "/",
        "start": "/start",
        "pipelines": "/pipelines",
        "pipeline": healthy,
        "pipeline-failing": failing,
        "pipeline-outputs": f"{failing}/outputs",
        "pipeline-versions": f"{healthy}/versions",
        "pipeline-draft": f"/pipelines/{data.draft}",
        "editor": f"{healthy}/edit?part=transforms.1",
        "editor-try": f"{healthy}/edit?side=try",
        "editor-new": "/pipelines/new",
        "connectors": "/connectors",
        "connector": f"/connectors/{data.connector}/edit",
        "connector-new": "/connectors/new/kafka",
        "config-files": "/config-files",
        "sql": "/sql",
        "sql-queries": "/sql/queries",
        "sql-history": "/sql/history",
        "messages": "/messages",
        "message": f"/messages?message_id={data.message}",
        "dead-letters": "/dead-letters",
        "dead-letters-none": "/dead-letters?state=expired",
        "attempts": "/attempts",
        "exports": "/exports",
        "usage": "/usage",
        "jobs": "/jobs",
        "collections": "/collections",
        "collection": f"/collections/{data.collection}",
        "collection-failing": f"/collections/{data.collection_lost}",
        "collection-none": f"/collections/{data.collection_new}",
        "kafka-proxies": "/kafka-proxies",
        "alerts": "/alerts",
        "access": "/access",
        "audit": "/audit",
        "not-found": "/nowhere",
    }


# These are taken once more in a workspace that has nothing.
_EMPTY = {
    *("overview", "pipelines", "connectors", "config-files", "messages", "dead-letters", "attempts", "exports"),
    *("collections", "kafka-proxies", "usage", "alerts", "access", "audit", "sql"),
}

# These are taken once more while the server cannot answer.
_FAILING = {"overview", "pipelines", "pipeline", "dead-letters", "usage", "jobs"}

_WHO = re.compile("/api/v1/(me|session)/")


def _refuse(route: Route) -> None:
    """Who is signed in is known; anything else is not to be had."""
    if _WHO.search(route.request.url):
        route.fallback()
        return
    problem = {"title": "Service unavailable", "status": 503, "detail": "The database is unavailable. Try again."}
    route.fulfill(status=503, content_type="application/problem+json", json=problem)


def _take(page: Page, folder: Path, name: str, address: str, act: Callable[[], None] | None = None) -> list[str]:
    """The pictures of one page, after something was done on it; returns what was wrong with it."""
    problems = []
    page.set_viewport_size({"width": _AXE_WIDTH, "height": _WIDTHS[_AXE_WIDTH]})
    page.goto(address)
    page.get_by_role("heading", level=1).first.wait_for()
    page.locator("[aria-busy=true]").first.wait_for(state="hidden")
    if act is not None:
        act()
    page.wait_for_timeout(1500)  # charts and the live numbers
    for width, height in _WIDTHS.items():
        page.set_viewport_size({"width": width, "height": height})
        for theme in _THEMES:
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            page.wait_for_timeout(300)
            page.screenshot(path=folder / f"{name}-{width}-{theme}.png", full_page=True)
            if width == _AXE_WIDTH:
                problems += [f"{name}, {theme}: {rule}: {element}" for rule, element in violations(page)]
        if (wide := int(page.evaluate("document.documentElement.scrollWidth"))) > width:
            problems.append(f"{name}: {wide} px wide at {width} px")
    return problems


def _take_state(page: Page, folder: Path, name: str, address: str, act: Callable[[], None]) -> list[str]:
    """One that cannot be reached is wrong as well, and keeps nobody from the others."""
    try:
        return _take(page, folder, name, address, act)
    except PlaywrightTimeoutError as error:
        return [f"{name}: {error.message.splitlines()[0]}"]


def _write_sizes(sizes: dict[str, int]) -> None:
    """What each page loads: scripts and styles, compressed by gzip, as somebody who comes for the first time has it."""
    rows = [f"| {name} | {size / 1000:.0f} |" for name, size in sizes.items()]
    head = [
        "# First load of each page",
        "",
        "`make screenshots`: scripts and styles in kB of gzip, nothing cached.",
        "",
    ]
    RESULTS.write_text("\n".join([*head, "| page | kB |", "|---|---|", *rows, ""]))


def _installations(stack: ExitStack, var: Path | None) -> Installation:
    if var is None:
        made = stack.enter_context(temporary_installation("screens", ROOT / "var/jars"))
        made.up()
        return made
    return Installation.running(var)


def _run(arguments: argparse.Namespace) -> Iterator[str]:
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        installation = _installations(stack, arguments.var)
        data = stack.enter_context(filled(installation, Layout(installation.var).run / "screens.json"))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(
            base_url=installation.endpoint("console"), locale=arguments.language, reduced_motion="reduce"
        )
        page.set_default_timeout(60_000)
        sign_in(page, installation)
        wanted = {name: address for name, address in pages(data).items() if re.search(arguments.pages, name)}
        sizes = {}
        for name, address in wanted.items():
            yield from _take(page, folder, name, address)
            sizes[name] = first_load(page)
        if not arguments.pages:
            _write_sizes(sizes)
        words = Words(arguments.language)
        for name, (address, act) in states(data).items():
            if re.search(arguments.pages, name):
                yield from _take_state(page, folder, name, address, partial(act, page, words))
        page.route("**/api/v1/**", _refuse)
        for name in (name for name in wanted if name in _FAILING):
            yield from _take(page, folder, f"{name}-unavailable", wanted[name])
        page.unroute("**/api/v1/**")
        page.evaluate(f"localStorage.setItem('workspace', '{EMPTY}')")
        for name in (name for name in wanted if name in _EMPTY):
            yield from _take(page, folder, f"{name}-empty", wanted[name])
        browser.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--var", type=Path, help="folder of an installation that runs; without it one is started")
    parser.add_argument("--folder", type=Path, default=ROOT / "var/screens")
    parser.add_argument("--pages", default="", help="only pages whose names match this expression")
    parser.add_argument("--language", default="en-US", choices=["en-US", "pt-BR"])
    problems = list(_run(parser.parse_args()))
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
