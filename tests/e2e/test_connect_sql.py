"""Connect SQL through the whole platform: the demo of the documentation, and the job that runs its queries."""

import json

from playwright.sync_api import Page, expect

from tests.e2e.browser import browser, page, sign_in
from tests.installation import Installation
from tests.waiting import wait_until

__all__ = ["browser", "page"]


def test_the_demo_joins_pageviews_with_users(installation: Installation) -> None:
    shown = installation.manage("demo_sql")
    assert "'page': '/home', 'name': 'Ana', 'country': 'BR'" in shown
    assert "'page': '/help', 'name': 'Ana', 'country': 'PT'" in shown

    # Supervision has started the application, which says how its query does.
    [job] = [one for one in installation.api("GET", "jobs/")[1] if one["name"] == "sql"]
    assert (job["status"], job["desired"]) == ("running", "running")
    [query] = installation.api("GET", "sql/queries/")[1]["queries"]
    assert (query["id"], query["state"], query["kind"]) == ("CSAS_DEMO_ENRICHED_1", "RUNNING", "persistent")

    # A group is counted by the same application while its rows are read, and no longer.
    counted = "SELECT userid, COUNT(*) AS n FROM demo_pageviews GROUP BY userid EMIT CHANGES LIMIT 1"
    lines = installation.manage("sql", "--json", "--from-beginning", "-e", counted).splitlines()
    answers = [json.loads(line) for line in lines]
    assert [row for line in answers if line["type"] == "rows" for row in line["rows"]] == [["u1", 2]]
    assert "Spark runs this query" in answers[0]["message"]
    assert len(installation.api("GET", "sql/queries/")[1]["queries"]) == 1

    installation.create("sql/", {"text": "DROP STREAM demo_enriched"})
    wait_until(
        lambda: [one["status"] for one in installation.api("GET", "jobs/")[1] if one["name"] == "sql"] == ["stopped"],
        180,
        explain=lambda: installation.api("GET", "jobs/"),
    )


def write(page: Page, statements: str) -> None:
    """In place of what is there. The editor itself deletes that: when the browser deletes text that the editor has
    marked, it keeps its look as an inline style, which the page's policy refuses."""
    editor = page.get_by_role("textbox", name="Statements")
    editor.press("ControlOrMeta+a")
    editor.press("Delete")
    editor.fill(statements)


def test_statements_are_written_run_and_followed_in_the_console(page: Page, installation: Installation) -> None:
    sign_in(page, installation)
    page.get_by_role("link", name="SQL", exact=True).click()
    write(page, "SHOW CONNECTERS")
    expect(page.locator(".cm-lintRange-error")).to_have_text("CONNECTERS")

    declaration = "(id VARCHAR KEY, page VARCHAR) WITH (kafka_topic = 'console-views', partitions = 1)"
    write(page, f"CREATE STREAM console_views {declaration}; DROP STREAM nothing")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("Declared stream console_views on the new topic console-views.")).to_be_visible()
    expect(page.get_by_text("There is no stream nothing.")).to_be_visible()
    page.get_by_role("tree").get_by_text("Streams").click()
    expect(page.get_by_role("tree").get_by_text("console_views")).to_be_visible()

    write(page, "SELECT page, LEN(page) AS length FROM console_views EMIT CHANGES")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("goes on")).to_be_visible()
    installation.create("sql/", {"text": "INSERT INTO console_views VALUES ('v', '/home')"})
    expect(page.get_by_role("row", name="/home 5")).to_be_visible()
    page.get_by_role("tab", name="Running queries").click()
    expect(page.get_by_role("row").filter(has_text="its rows are read")).to_contain_text("Running")
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_role("row").filter(has_text="its rows are read")).to_have_count(0)
    page.get_by_role("tab", name="History").click()
    expect(page.get_by_text("SELECT page, LEN(page) AS length FROM console_views EMIT CHANGES").first).to_be_visible()
    installation.create("sql/", {"text": "DROP STREAM console_views DELETE TOPIC"})
