"""What pages show once something is done on them: mistakes, dialogs, drawers, offers."""

import json
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page

from backend.runtime.node import FRONTEND
from tests.screens.data import Data
from tests.waiting import wait_until


class Words:
    """The console's texts in one language, by their keys."""

    def __init__(self, language: str) -> None:
        file = "en" if language.startswith("en") else language
        self._texts: dict[str, Any] = json.loads((FRONTEND / f"src/locales/{file}.json").read_text())

    def __call__(self, key: str) -> str:
        """The text up to the first value in it."""
        found: Any = self._texts
        for name in key.split("."):
            found = found[name]
        return str(found).partition("{{")[0].strip()


Act = Callable[[Page, Words], None]


def states(data: Data) -> dict[str, tuple[str, Act]]:
    """By the name of the picture: the address, and what is done there. Nothing is saved by any of it."""
    healthy = f"/pipelines/{data.healthy}"
    return {
        "connector-errors": ("/connectors/new/kafka", _save),
        "connector-draft": ("/connectors/new/sql", _leave_a_draft),
        "connector-types": ("/connectors", _opening("connectors.create")),
        "connector-delete": ("/connectors", _opening("common.delete")),
        "pipeline-publish": (healthy, _opening("pipelines.publish")),
        "pipeline-delete": (healthy, _opening("common.delete")),
        "editor-errors": ("/pipelines/new", _save),
        "dead-letters-redrive": ("/dead-letters", _opening("deadLetters.redriveOne")),
        "dead-letters-discard": ("/dead-letters", _opening("deadLetters.discardOne")),
        "dead-letter": ("/dead-letters", _open_first_letter),
        "access-key": ("/access", _opening("access.createKey")),
        "access-no-member": ("/access?member=nobody-has-this-name", _nothing),
        "export": ("/exports", _open_first_file),
        "sql-result": ("/sql", _run_sql),
        "alert-rule": ("/alerts", _opening("alerts.create")),
        "alert-rule-delete": ("/alerts", _opening("common.delete")),
        "pipelines-no-match": ("/pipelines?search=nothing-has-this-name", _nothing),
        "connectors-no-match": ("/connectors?search=nothing-has-this-name", _nothing),
    }


def _nothing(_page: Page, _words: Words) -> None: ...


def _opening(key: str) -> Act:
    """Opens the dialog of the first button with this text."""

    def act(page: Page, words: Words) -> None:
        page.locator("#content").get_by_role("button", name=words(key)).first.click()
        page.get_by_role("dialog").wait_for()

    return act


def _save(page: Page, words: Words) -> None:
    page.get_by_role("button", name=words("common.save"), exact=True).first.click()
    page.get_by_role("alert").filter(has_text=words("common.problems")).wait_for()


def _leave_a_draft(page: Page, words: Words) -> None:
    page.get_by_role("textbox", name=words("common.name")).first.fill("Warehouse")
    # Asked by the browser's debugger: the content security policy forbids a page to evaluate text.
    wait_until(lambda: page.evaluate("JSON.stringify({...localStorage}).includes('Warehouse')"))
    page.once("dialog", lambda dialog: dialog.accept())  # leaving a changed form asks
    page.reload()
    page.get_by_role("button", name=words("draft.restore")).wait_for()


def _open_first_letter(page: Page, words: Words) -> None:
    letters = page.get_by_role("table", name=words("deadLetters.title"), exact=True)
    letters.locator("tbody tr").first.get_by_role("button").last.click()
    page.get_by_role("dialog").wait_for()


def _open_first_file(page: Page, words: Words) -> None:
    files = page.get_by_role("table", name=words("exports.title"), exact=True)
    files.get_by_role("button", name="customers-00026").first.click()
    page.get_by_role("dialog").wait_for()


def _run_sql(page: Page, words: Words) -> None:
    page.locator("#content .cm-content").fill("SHOW CONNECTORS; DESCRIBE visits; SELECT nothing FROM nowhere;")
    page.get_by_role("button", name=words("sql.run"), exact=True).click()
    page.get_by_role("table").first.wait_for()
