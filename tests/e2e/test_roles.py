"""What people of each role see of the console: no button that the server would refuse."""

import re
import uuid
from dataclasses import dataclass

import pytest
from aiohttp import web
from playwright.sync_api import Page, expect

from tests.e2e.browser import Requests, browser, csrf_headers, page, sign_in
from tests.e2e.test_messages import name
from tests.installation import Installation
from tests.receiver import receiver_in_thread
from tests.waiting import wait_until

__all__ = ["browser", "page"]

PASSWORD = "one-for-all-of-them-42"

OPERATORS = {"Pause", "Redrive", "Discard", "Open circuit breaker"}
EDITORS = {
    *("New pipeline", "New connector", "New alert rule", "Delete", "Edit", "Publish version", "Restore as draft"),
    *("Plan", "Test connection", "Save"),
}
ADMINS = {"Create API key"}
"""The buttons whose action needs at least this role, without the number that may follow."""

_ALLOWED: dict[str, set[str]] = {"viewer": set(), "operator": OPERATORS, "editor": OPERATORS | EDITORS}
_ALL = OPERATORS | EDITORS | ADMINS


@dataclass
class Things:
    """A pipeline with an unpublished version and dead letters, and its connector."""

    pipeline: str
    connector: str

    @property
    def pages(self) -> list[str]:
        pipeline = f"/pipelines/{self.pipeline}"
        return [
            *("/", "/pipelines", pipeline, f"{pipeline}/outputs", f"{pipeline}/versions", f"{pipeline}/edit"),
            *("/connectors", f"/connectors/{self.connector}/edit", "/config-files", "/dead-letters", "/exports"),
            *("/collections", "/messages", "/attempts", "/usage", "/jobs", "/alerts", "/access", "/sql"),
        ]


@pytest.fixture(scope="module")
def things(installation: Installation) -> Things:
    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=422, text="no such customer")

    with receiver_in_thread(refuse) as server:
        pipeline = installation.publish_pipeline(name(), server.url)
        wait_until(lambda: installation.post(pipeline, {"n": 1})[0] == 202)
        wait_until(lambda: installation.api("GET", f"dead-letters/?pipeline={pipeline}")[1]["results"])
    read = installation.api("GET", f"pipelines/{pipeline}/")[1]
    changed = read["config"] | {"transforms": [{"type": "set", "path": "a", "value": 1}]}
    assert installation.api("PUT", f"pipelines/{pipeline}/", {"name": read["name"], "config": changed})[0] == 200
    return Things(pipeline, read["config"]["outputs"][0]["connector"])


def person(installation: Installation, things: Things, role: str) -> str:
    """The name of a new member with this role."""
    username = f"{role}-{uuid.uuid4().hex[:12]}"
    code = (
        "from backend.apps.pipelines.models import Pipeline; "
        "from backend.apps.workspaces.models import Membership, User; "
        f"user = User.objects.create_user({username!r}, password={PASSWORD!r}); "
        f"workspace = Pipeline.objects.get(pk={things.pipeline!r}).workspace; "
        f"Membership.objects.create(workspace=workspace, user=user, role={role!r})"
    )
    installation.manage_in("shell", "-c", code)
    return username


def offered(page: Page, paths: list[str]) -> dict[str, set[str]]:
    """The buttons that are known, by page."""
    buttons: dict[str, set[str]] = {}
    requests = Requests(page)
    for path in paths:
        requests.goto(path)
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        if path == "/config-files":
            page.get_by_role("textbox", name="YAML").fill("pipelines: []")  # nothing can be planned before
        texts = page.locator("#content button:enabled, #content a[href]").all_inner_texts()
        buttons[path] = {re.sub(r" [\d,]+$", "", text.strip()) for text in texts} & _ALL
    return buttons


@pytest.mark.parametrize(
    "role", ["viewer", *(pytest.param(role, marks=pytest.mark.long) for role in ("operator", "editor"))]
)
def test_nobody_sees_a_button_that_the_server_would_refuse(
    page: Page, installation: Installation, things: Things, role: str
) -> None:
    sign_in(page, installation, person(installation, things, role), PASSWORD)
    buttons = offered(page, things.pages)
    refused = {path: names - _ALLOWED[role] for path, names in buttons.items() if names - _ALLOWED[role]}
    assert refused == {}
    # What a role may do is offered somewhere: the names above are those that the buttons have.
    assert set().union(*buttons.values()) >= _ALLOWED[role]


def test_an_admin_sees_what_all_others_see_and_more(page: Page, installation: Installation, things: Things) -> None:
    sign_in(page, installation)
    assert set().union(*offered(page, things.pages).values()) >= _ALL


def test_a_viewer_of_an_empty_workspace_is_told_who_fills_it(page: Page, installation: Installation) -> None:
    username = f"viewer-{uuid.uuid4().hex[:12]}"
    code = (
        "from backend.apps.workspaces.models import Membership, User, Workspace; "
        f"user = User.objects.create_user({username!r}, password={PASSWORD!r}); "
        f"workspace = Workspace.objects.create(name={username!r}, slug={username!r}); "
        "Membership.objects.create(workspace=workspace, user=user, role='viewer')"
    )
    installation.manage_in("shell", "-c", code)
    sign_in(page, installation, username, PASSWORD)
    expect(page.get_by_text("Nothing flows here yet")).to_be_visible()
    expect(page.get_by_role("button", name="Create and publish")).to_have_count(0)


def test_a_viewer_is_told_where_a_page_is_not_for_them_and_refused_by_the_server(
    page: Page, installation: Installation, things: Things
) -> None:
    sign_in(page, installation, person(installation, things, "viewer"), PASSWORD)
    navigation = page.get_by_role("navigation")
    expect(navigation.get_by_role("link", name="Pipelines", exact=True)).to_be_visible()
    expect(navigation.get_by_role("link", name="Audit")).to_have_count(0)
    for path in ("/audit", "/pipelines/new", "/connectors/new/http"):
        page.goto(path)
        expect(page.get_by_text("Your role")).to_be_visible()
    for path in (f"pipelines/{things.pipeline}/pause/", f"pipelines/{things.pipeline}/publish/"):
        answer = page.request.post(f"/api/v1/{path}", headers=csrf_headers(page), data={})
        assert (answer.status, "role" in answer.json()["detail"]) == (403, True), answer.text()
