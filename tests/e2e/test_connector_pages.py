"""On its page, each connector says what it has reached, and what is wrong when a password is."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from backend.domain import json
from backend.domain.connector import connectors
from backend.domain.message import new_message_id
from tests.e2e.browser import browser, page, sign_in  # noqa: F401
from tests.e2e.matrix.all_ends import ends_of
from tests.e2e.matrix.ends import End, Inlet, Outlet
from tests.e2e.matrix.running import start_servers
from tests.installation import Installation
from tests.jdbc import jdbc_drivers  # noqa: F401
from tests.mariadb import mariadb_server  # noqa: F401
from tests.seaweedfs import seaweedfs  # noqa: F401

_ENDS = {end.title or end.type: end for end in [*ends_of(Outlet), *ends_of(Inlet)]}
_SECRET = '"writeOnly": true'


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(_ENDS))
def test_it_says_what_it_reached_and_what_is_wrong(
    name: str, installation: Installation, request: pytest.FixtureRequest
) -> None:
    end = _ENDS[name]
    start_servers(request, [end])
    with _opened(end) as connection:
        # Only now: the browser keeps an event loop running in this thread.
        opened: Page = request.getfixturevalue("page")
        sign_in(opened, installation)
        _test(opened, installation, end, connection)
        expect(opened.get_by_role("status").filter(has_text="Connect")).to_be_visible()
        secrets = _secret_fields(end)
        if (wrong := _with_wrong_secrets(connection, secrets)) != connection:
            _test(opened, installation, end, wrong)
            problems = opened.get_by_role("alert").filter(has_text="Correct these fields")
            expect(problems).to_be_visible()
            print(name, problems.inner_text())
            problems.get_by_role("button").first.click()
            assert opened.evaluate("document.activeElement.id").startswith("connection_")


@contextmanager
def _opened(end: type[End]) -> Iterator[dict[str, Any]]:
    """The connection of an end. Some ends run event loops, which a thread can have one of."""
    with ThreadPoolExecutor(1) as thread:
        opened = thread.submit(end).result()
        yield opened.connection
        thread.submit(opened.close).result()


def _test(opened: Page, installation: Installation, end: type[End], connection: dict[str, Any]) -> None:
    """Opens the page of a new connector and tests it."""
    named = {"name": new_message_id(), "type": end.type, "connection": connection}
    connector = installation.create("connectors/", named)
    opened.goto(f"/connectors/{connector['id']}")
    opened.get_by_role("button", name="Test connection").click()


def _secret_fields(end: type[End]) -> set[str]:
    return set(_named_secrets(connectors.get(end.type).connection_model.model_json_schema()))


def _named_secrets(schema: Any) -> Iterator[str]:
    match schema:
        case dict():
            for name, field in schema.get("properties", {}).items():
                if _SECRET in json.dumps(field).decode().replace('":', '": '):
                    yield name
            for part in schema.values():
                yield from _named_secrets(part)
        case list():
            for part in schema:
                yield from _named_secrets(part)


def _with_wrong_secrets(value: Any, secrets: set[str]) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        name: "wrong" if name in secrets and isinstance(part, str) and part else _with_wrong_secrets(part, secrets)
        for name, part in value.items()
    }
