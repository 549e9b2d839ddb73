"""What nothing behind the REST API can hold is refused at its path, by every operation."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from backend.apps.workspaces.models import User, Workspace
from tests import factories

pytestmark = pytest.mark.django_db

PARAMETER = re.compile(r"{\w+}")
HOSTILE = {
    r'{"a": "x\u0000"}': "a",
    r'{"a": [{"b": "\ud800"}]}': "a.0.b",
    r'{"\u0000": 1}': r"\x00",
    '{"a": {"b": 1, "b": 2}}': "a.b",
    '{"a": 1e400}': "a",
    f'{{"a": {"[" * 500}{"]" * 500}}}': "a.0.0",
    "[" * 200_000: "",
    '{"a": ': "",
}


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in SchemaGenerator().get_schema(public=True)["paths"].items():
        for method, operation in methods.items():
            yield path, method.upper(), operation


def test_every_endpoint_refuses_what_cannot_be_stored(client: APIClient, workspace: Workspace) -> None:
    # Jobs belong to the installation, and so to its administrators.
    User.objects.filter(pk=factories.admin_of(workspace).pk).update(is_superuser=True)
    bodies = [(path, method) for path, method, operation in operations() if "requestBody" in operation]
    assert len(bodies) > 15
    pipeline = str(factories.make_pipeline(workspace).pk)
    for template, method in bodies:
        path = PARAMETER.sub(pipeline, template)
        for body, place in HOSTILE.items():
            answer = client.generic(method, path, body, content_type="application/json")
            # Whoever asks for what does not exist need not learn what is wrong with the rest.
            assert answer.status_code in {400, 404}, (method, path, answer.content)
            assert answer["content-type"] == "application/problem+json"
            if answer.status_code == 400:
                assert list(answer.json()["errors"]) == [place], (method, path, body[:50])


def test_a_rejected_document_changes_nothing(client: APIClient, workspace: Workspace) -> None:
    connector = factories.make_connector(workspace)
    path = f"/api/v1/connectors/{connector.pk}/"
    shown = client.get(path).json()
    answer = client.put(path, shown | {"name": "a\0b"}, format="json")
    assert (answer.status_code, answer.json()["errors"]) == (
        400,
        {"name": ["The character U+0000 cannot be stored: remove it."]},
    )
    assert client.get(path).json()["name"] == shown["name"]


def test_no_address_or_cookie_breaks_the_api(client: APIClient) -> None:
    answers = []
    for path, method, _ in operations():
        answers.append(client.generic(method, PARAMETER.sub("x", path) + "?search=%00"))
        if "{" in path:
            answers.append(client.generic(method, PARAMETER.sub("%00", path)))
    answers.append(client.get("/api/v1/pipelines/", HTTP_COOKIE=r'sessionid="\000"'))
    assert {(answer.status_code, answer["content-type"]) for answer in answers} == {(400, "application/problem+json")}


def test_a_document_that_is_too_large_is_not_read(client: APIClient) -> None:
    answer = client.generic("POST", "/api/v1/connectors/", b" " * (16 * 1024 * 1024 + 1), "application/json")
    assert (answer.status_code, "16,777,216 bytes" in answer.json()["detail"]) == (413, True)
