"""``make bench-lists``: the lists of 500 pipelines and of 100,000 dead letters in a browser: how soon they are there,
and how smoothly they are scrolled.

Starts a separate installation with its own folder and ports. Nothing in ``var`` is used except the built front end and
the jars.
"""

import argparse
import re
import statistics
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, Page, sync_playwright

from backend.settings import ROOT
from tests.bench.machine import machine
from tests.e2e.browser import FLAGS, chromium, sign_in
from tests.installation import Installation, temporary_installation
from tests.waiting import wait_until

WORKSPACE = "many"
"""The short name of the workspace with all of them."""
RESULTS = Path(__file__).parent / "results/lists.md"

_WIDTHS = {1440: 900, 390: 844}
_PIXELS = 120
"""By so many each frame scrolls on: 7,200 a second at 60 frames."""
_LIMIT_SECONDS = 300.0
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")

_WATCH = """
(() => {
  performance.setResourceTimingBufferSize(20000)
  window.lists = {}
  const rowsOf = (table) =>
    table.hasAttribute('aria-rowcount')
      ? Number(table.getAttribute('aria-rowcount')) - 1
      : table.querySelectorAll('tr[data-row]').length
  const look = () => {
    for (const table of document.querySelectorAll('table[data-list]')) {
      if (!table.querySelector('tr[data-row]')) continue
      const known = (window.lists[table.getAttribute('aria-label')] ??= { first: performance.now(), last: 0, rows: 0 })
      const rows = rowsOf(table)
      if (rows !== known.rows) Object.assign(known, { rows, last: performance.now() })
    }
    requestAnimationFrame(look)
  }
  requestAnimationFrame(look)
})()
"""
"""Notes when each list has its first row, and when it got its newest."""

_SCROLL = """
([seconds, pixels]) => new Promise((resolve) => {
  const frames = []
  let before = null
  let began = null
  let direction = 1
  const step = (now) => {
    if (before !== null) frames.push(now - before)
    before = now
    began ??= now
    const bottom = document.documentElement.scrollHeight - window.innerHeight
    if (window.scrollY >= bottom - 1) direction = -1
    if (window.scrollY <= 0) direction = 1
    window.scrollBy({ top: direction * pixels, behavior: 'instant' })
    if (now - began < seconds * 1000) requestAnimationFrame(step)
    else resolve(frames)
  }
  requestAnimationFrame(step)
})
"""
"""Down, and up again from the end; returns how long each frame took, in milliseconds."""

_ANSWERS = """
performance.getEntriesByType('resource')
  .filter(({ name }) => name.includes('/api/v1/'))
  .map(({ name, duration }) => [new URL(name).pathname, duration])
"""


@dataclass(frozen=True)
class Shown:
    """A list: its page, its name, and the rows that are there before anybody scrolls."""

    path: str
    label: str
    rows: int


@dataclass
class Result:
    """Of one list at one width. Times are milliseconds, of the rows since the page was asked for."""

    label: str
    width: int
    first_row: float
    all_rows: float
    rows: int
    rows_after: int
    frames: list[float]
    heap_mib: float
    dom_rows: int
    answers: dict[str, list[float]]


def measure(page: Page, session: CDPSession, shown: Shown, width: int, seconds: float) -> Result:
    """Opens the list, waits until its rows are there, and scrolls."""
    page.set_viewport_size({"width": width, "height": _WIDTHS[width]})
    page.goto(shown.path)
    wait_until(lambda: _noted(page, shown)["rows"] >= shown.rows, _LIMIT_SECONDS)
    page.wait_for_timeout(3000)  # what else the page loads, and the first live numbers
    before = _noted(page, shown)
    frames: list[float] = page.evaluate(_SCROLL, [seconds, _PIXELS])
    session.send("HeapProfiler.collectGarbage")
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    answers: dict[str, list[float]] = defaultdict(list)
    for address, took in page.evaluate(_ANSWERS):
        answers[_ID.sub("ID", address)].append(took)
    result = Result(
        label=shown.label,
        width=width,
        first_row=before["first"],
        all_rows=before["last"],
        rows=before["rows"],
        rows_after=_noted(page, shown)["rows"],
        frames=frames,
        heap_mib=metrics["JSHeapUsedSize"] / 2**20,
        dom_rows=page.locator(f"table[aria-label='{shown.label}'] tr[data-row]").count(),
        answers=dict(answers),
    )
    print(_row(result), flush=True)
    return result


def _noted(page: Page, shown: Shown) -> dict[str, Any]:
    known: dict[str, Any] | None = page.evaluate(f"window.lists['{shown.label}'] ?? null")
    return known or {"rows": 0, "first": 0.0, "last": 0.0}


def run(installation: Installation, pipelines: int, letters: int, seconds: float) -> list[Result]:
    installation.manage_in("shell", "-c", f"from tests.bench.many import write; write({pipelines}, {letters})")
    results: list[Result] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        page = browser.new_page(base_url=installation.endpoint("console"), locale="en-US", reduced_motion="reduce")
        page.set_default_timeout(_LIMIT_SECONDS * 1000)
        page.add_init_script(_WATCH)
        sign_in(page, installation)
        page.evaluate(f"localStorage.setItem('workspace', '{WORKSPACE}')")
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable")
        session.send("HeapProfiler.enable")
        # One page of dead letters is loaded at first; further ones come with the scrolling.
        lists = Shown("/pipelines", "Pipelines", pipelines), Shown("/dead-letters", "Dead letters", min(100, letters))
        results += [measure(page, session, shown, width, seconds) for width in _WIDTHS for shown in lists]
        browser.close()
    return results


def _row(result: Result) -> str:
    cuts = statistics.quantiles(result.frames, n=100)
    return (
        f"| {result.label} | {result.width} px | {result.first_row:,.0f} | {result.all_rows:,.0f} | {result.rows:,} "
        f"| {result.rows_after:,} | {cuts[49]:.1f} | {cuts[94]:.1f} | {max(result.frames):.1f} "
        f"| {result.dom_rows} | {result.heap_mib:.0f} |"
    )


def _answer_rows(results: list[Result]) -> list[str]:
    rows = []
    for result in results:
        for address, times in sorted(result.answers.items()):
            rows.append(
                f"| {result.label}, {result.width} px | `{address}` | {len(times)} | {statistics.median(times):.0f} "
                f"| {max(times):.0f} |"
            )
    return rows


def report(results: list[Result], pipelines: int, letters: int, seconds: float) -> str:
    rows, answers = "\n".join(map(_row, results)), "\n".join(_answer_rows(results))
    return f"""# Lists

`make bench-lists`, {datetime.now(UTC):%Y-%m-%d}, {machine()}; Kafka, Spark, PostgreSQL, Valkey, the console and the
browser share it. A workspace with {pipelines:,} published pipelines and {letters:,} waiting dead letters, in Chromium
without a graphics card.

The times to the first row and to all rows, of dead letters those of the first page, are milliseconds from the
navigation of a person who is signed in. Then the list is scrolled for {seconds:.0f} s by {_PIXELS} px in each frame,
while its live numbers change, and further pages of dead letters are loaded. The heap is that after garbage collection.

| list | width | first row | all rows | rows | after scrolling | frame p50 | p95 | longest | in the DOM | heap, MiB |
|---|---|---|---|---|---|---|---|---|---|---|
{rows}

Answers of the API as the browser saw them, waiting for a connection included, in milliseconds:

| list | address | answers | median | longest |
|---|---|---|---|---|
{answers}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipelines", type=int, default=500)
    parser.add_argument("--letters", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--keep", action="store_true", help="print the result without storing it")
    parser.add_argument("--jars", type=Path, default=ROOT / "var/jars", help="use the jars in this folder")
    arguments = parser.parse_args()
    with temporary_installation("bench", arguments.jars if arguments.jars.exists() else None) as installation:
        installation.up()
        results = run(installation, arguments.pipelines, arguments.letters, arguments.seconds)
    text = report(results, arguments.pipelines, arguments.letters, arguments.seconds)
    print(text)
    if not arguments.keep:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
