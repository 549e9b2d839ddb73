import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.sites import site
from django.core.management import call_command
from django.core.management.base import CommandError
from pydantic import SecretStr
from rest_framework.test import APIClient

from backend.apps.audit.models import AuditEntry
from backend.apps.connectors.models import Connector, StoredSecret
from backend.apps.connectors.secret_store import connection_with_secrets
from backend.apps.workspaces.models import Role, User, Workspace
from backend.domain import connector as domain
from backend.domain.connector import Connection
from backend.domain.masking import MASK
from backend.domain.model import StrictModel
from tests import factories

URL = "/api/v1/connectors/"
BEARER = {"url": "https://example.com/", "authentication": {"type": "bearer", "token": "t0p-secret"}}

pytestmark = pytest.mark.django_db


def create(client: APIClient, **changes: object) -> dict[str, object]:
    body = {"name": "ERP", "type": "http", "connection": BEARER} | changes
    answer = client.post(URL, body, format="json")
    assert answer.status_code == 201, answer.content
    return answer.json()


def test_a_secret_goes_in_and_never_comes_back(client: APIClient) -> None:
    created = create(client)
    assert created["connection"]["authentication"]["token"] == MASK  # type: ignore[index]
    for answer in (client.get(URL), client.get(f"{URL}{created['id']}/")):
        assert b"t0p-secret" not in answer.content
    connector = Connector.objects.get(pk=created["id"])
    assert "t0p-secret" not in str(connector.connection)
    assert b"t0p-secret" not in bytes(StoredSecret.objects.get(connector=connector).sealed)
    assert connection_with_secrets(connector)["authentication"]["token"] == "t0p-secret"


def test_a_connector_keeps_its_type(client: APIClient) -> None:
    created = create(client)
    answer = client.put(f"{URL}{created['id']}/", created | {"type": "kafka", "name": "Renamed"}, format="json")
    assert answer.status_code == 400
    assert list(answer.json()["errors"]) == ["type"]
    assert Connector.objects.get(pk=created["id"]).name == "ERP"


def test_the_mask_sent_back_keeps_the_secret_and_a_new_value_replaces_it(client: APIClient) -> None:
    created = create(client)
    url = f"{URL}{created['id']}/"
    changed = created | {"name": "ERP 2"}
    assert client.put(url, changed, format="json").status_code == 200
    connector = Connector.objects.get(pk=created["id"])
    assert connection_with_secrets(connector)["authentication"]["token"] == "t0p-secret"
    changed["connection"] = {"url": "https://example.com/", "authentication": {"type": "bearer", "token": "new"}}
    assert client.put(url, changed, format="json").status_code == 200
    connector.refresh_from_db()
    assert connection_with_secrets(connector)["authentication"]["token"] == "new"


def test_a_mask_without_a_stored_secret_is_refused(client: APIClient) -> None:
    connection = {"url": "https://example.com/", "authentication": {"type": "bearer", "token": MASK}}
    answer = client.post(URL, {"name": "ERP", "type": "http", "connection": connection}, format="json")
    assert answer.status_code == 400
    assert list(answer.json()["errors"]) == ["connection.authentication.token"]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"name": "x", "type": "nope", "connection": {}}, "type"),
        ({"name": "x", "type": "http", "connection": {}}, "connection.url"),
        ({"name": "x", "type": "http", "connection": {"url": "ftp://x/"}}, "connection.url"),
        ({"name": "x", "type": "http", "connection": {"url": "http://x/", "ulr": 1}}, "connection.ulr"),
        ({"type": "http", "connection": {"url": "http://x/"}}, "name"),
        ({"name": "x", "type": "http", "connection": "text"}, "connection"),
    ],
)
def test_bad_input_is_told_at_its_field_and_nothing_is_saved(
    client: APIClient, body: dict[str, object], path: str
) -> None:
    answer = client.post(URL, body, format="json")
    assert answer.status_code == 400
    assert answer["content-type"] == "application/problem+json"
    assert path in answer.json()["errors"]
    assert not Connector.objects.exists()


def test_a_name_is_used_once(client: APIClient) -> None:
    create(client)
    answer = client.post(URL, {"name": "ERP", "type": "http", "connection": BEARER}, format="json")
    assert answer.status_code == 400
    assert "name" in answer.json()["errors"]


def test_a_connector_in_use_is_not_deleted(client: APIClient, workspace: Workspace) -> None:
    connector = factories.make_connector(workspace)
    pipeline = factories.make_pipeline(workspace, connector)
    user = {"kind": "pipeline", "id": str(pipeline.pk), "name": pipeline.name}
    assert client.get(f"{URL}{connector.pk}/used-by/").json() == [user]
    answer = client.delete(f"{URL}{connector.pk}/")
    assert answer.status_code == 409
    assert pipeline.name in answer.json()["detail"]
    assert client.delete(f"{URL}{factories.make_connector(workspace).pk}/").status_code == 204


def test_another_workspaces_connector_does_not_exist(client: APIClient) -> None:
    foreign = factories.make_connector(factories.make_workspace())
    for call in (client.get, client.delete):
        assert call(f"{URL}{foreign.pk}/").status_code == 404
    assert client.get(URL).json()["results"] == []


@pytest.mark.parametrize(
    ("role", "read", "write"),
    [(Role.VIEWER, 200, 403), (Role.OPERATOR, 200, 403), (Role.EDITOR, 200, 201), (Role.ADMIN, 200, 201)],
)
def test_roles(workspace: Workspace, client_of: Callable[[User], APIClient], role: Role, read: int, write: int) -> None:
    client = client_of(factories.add_member(workspace, role))
    assert client.get(URL).status_code == read
    assert client.post(URL, {"name": "x", "type": "http", "connection": BEARER}, format="json").status_code == write


def test_nobody_signed_in_gets_401(db: None) -> None:
    answer = APIClient().get(URL)
    assert answer.status_code == 401
    assert answer["content-type"] == "application/problem+json"


def test_a_connection_test_says_what_failed(client: APIClient) -> None:
    body = {"type": "http", "connection": {"url": "http://127.0.0.1:1/"}}
    answer = client.post(f"{URL}test/", body, format="json")
    assert answer.status_code == 400
    assert "No connection" in answer.json()["errors"]["connection.url"][0]


def test_the_admin_site_masks_secrets(workspace: Workspace) -> None:
    user = factories.make_user(is_staff=True, is_superuser=True)
    connector = factories.make_connector(workspace, authentication={"type": "bearer", "token": "t0p-secret"})
    client = APIClient()
    client.force_login(user)
    page = client.get(f"/admin/connectors/connector/{connector.pk}/change/")
    assert page.status_code == 200
    assert b"t0p-secret" not in page.content
    assert StoredSecret not in site._registry


def test_types_publish_their_schemas_with_secrets_marked(client: APIClient) -> None:
    types = {one["type"]: one for one in client.get("/api/v1/connector-types/").json()}
    assert {"http", "kafka"} <= set(types)
    schema = types["http"]["connection_schema"]
    assert schema["$defs"]["BearerAuthentication"]["properties"]["token"]["writeOnly"] is True


def test_a_broken_type_is_listed_with_its_reason_and_those_who_use_it_say_it(
    client: APIClient, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = factories.make_connector(workspace)
    pipeline = factories.make_pipeline(workspace, connector)
    reason = "The module backend.connectors.sap cannot be loaded: OSError: No library."
    monkeypatch.setitem(domain.connectors._broken, "sap", reason)
    Connector.objects.filter(pk=connector.pk).update(type="sap")
    types = {one["type"]: one for one in client.get("/api/v1/connector-types/").json()}
    assert types["sap"]["unavailable"] == reason
    assert types["http"]["unavailable"] == ""
    sentence = f"The type 'sap' cannot be used. {reason}"
    assert client.get(f"{URL}{connector.pk}/").json()["failure"] == sentence
    created = client.post(URL, {"name": "SAP", "type": "sap", "connection": {}}, format="json")
    assert created.json()["errors"]["type"] == [sentence]
    published = client.post(f"/api/v1/pipelines/{pipeline.pk}/publish/")
    assert published.json()["errors"] == {"config.outputs.0.connector": [sentence]}


@pytest.mark.parametrize("host", ["10.0.0.1", "169.254.169.254", "167772161", "[::ffff:10.0.0.1]"])
def test_addresses_inside_the_operators_network_are_refused(client: APIClient, host: str) -> None:
    http = {"name": "x", "type": "http", "connection": {"url": f"http://{host}:8080/"}}
    for url, body in ((URL, http), (f"{URL}test/", http)):
        answer = client.post(url, body, format="json")
        assert answer.status_code == 400
        assert "HEADRACE_OUTBOUND_ALLOW" in answer.json()["errors"]["connection.url"][0]
    assert not Connector.objects.exists()


def test_brokers_inside_the_operators_network_are_refused(client: APIClient) -> None:
    kafka = {"name": "x", "type": "kafka", "connection": {"bootstrap_servers": "example.com:9092,10.0.0.1:9092"}}
    answer = client.post(URL, kafka, format="json")
    assert list(answer.json()["errors"]) == ["connection.bootstrap_servers"]


def test_a_stored_secret_does_not_follow_a_new_address(client: APIClient) -> None:
    created = create(client)
    masked: Any = created["connection"]
    moved = created | {"connection": masked | {"url": "https://attacker.example.com/"}}
    url = f"{URL}{created['id']}/"
    for answer in (client.put(url, moved, format="json"), client.post(f"{url}test/", moved, format="json")):
        assert answer.status_code == 400
        assert "enter the secret again" in answer.json()["errors"]["connection.authentication.token"][0]
    assert Connector.objects.get().connection["url"] == BEARER["url"]


def test_secrets_are_sealed_with_a_new_key_while_everything_runs(workspace: Workspace, settings: Any) -> None:
    connectors = [
        factories.make_connector(workspace, authentication={"type": "bearer", "token": f"t0p-{n}"}) for n in range(3)
    ]
    before = Path(settings.CONSOLE.secret_keys_file).read_text()
    try:
        call_command("secrets_rotate", "--add-key", stdout=(printed := io.StringIO()))
        current = json.loads(Path(settings.CONSOLE.secret_keys_file).read_text())["current"]
        assert f"Key {current} was added." in printed.getvalue()
        for n, connector in enumerate(connectors):
            assert bytes(StoredSecret.objects.get(connector=connector).sealed)[4:].startswith(current.encode())
            assert connection_with_secrets(connector)["authentication"]["token"] == f"t0p-{n}"
        call_command("secrets_rotate", stdout=(again := io.StringIO()))
        assert "0 secrets" in again.getvalue()
        StoredSecret.objects.filter(connector=connectors[0]).update(sealed=b"HR1\x02k9tampered")
        with pytest.raises(CommandError, match=connectors[0].name):
            call_command("secrets_rotate", stdout=io.StringIO())
        assert connection_with_secrets(connectors[1])["authentication"]["token"] == "t0p-1"
    finally:
        Path(settings.CONSOLE.secret_keys_file).write_text(before)


def test_a_secret_whose_name_holds_a_slash_is_kept(client: APIClient) -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    created = create(client, connection={"url": "https://example.com/", "signing_secrets": {"x/y~1": secret}})
    assert created["connection"]["signing_secrets"] == {"x/y~1": MASK}  # type: ignore[index]
    connector = Connector.objects.get()
    assert connection_with_secrets(connector)["signing_secrets"] == {"x/y~1": secret}
    answer = client.put(f"{URL}{created['id']}/", created | {"name": "ERP 2"}, format="json")
    assert answer.status_code == 200, answer.content
    connector.refresh_from_db()
    assert connection_with_secrets(connector)["signing_secrets"] == {"x/y~1": secret}


class _Tenant(StrictModel):
    """One of several."""

    name: str
    token: SecretStr


class _Tenants(Connection):
    """Secrets in lists."""

    tenants: list[_Tenant]
    keys: list[SecretStr] = []


class _TenantsConnector(domain.Connector):
    """A system of several tenants."""

    type = "tenants"
    title = "Tenants"
    connection_model = _Tenants
    example = {"tenants": []}

    @staticmethod
    async def check(connection: _Tenants) -> str:
        return " ".join(tenant.token.get_secret_value() for tenant in connection.tenants)


def test_secrets_in_lists_stay_with_their_items(client: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(domain.connectors._classes, "tenants", _TenantsConnector)
    tenants = [{"name": name, "token": f"t0p-{name}"} for name in ("a", "b", "c")]
    created: Any = create(client, type="tenants", connection={"tenants": tenants, "keys": ["t0p-1", "t0p-2"]})
    url = f"{URL}{created['id']}/"
    assert b"t0p" not in client.get(url).content
    shown = created["connection"]["tenants"]
    connector = Connector.objects.get()

    reordered = created | {"connection": {"tenants": [shown[2], shown[0]], "keys": [MASK, MASK]}}
    assert client.put(url, reordered, format="json").status_code == 200
    connector.refresh_from_db()
    stored = connection_with_secrets(connector)
    assert stored == {"tenants": [tenants[2], tenants[0]], "keys": ["t0p-1", "t0p-2"]}
    entry = AuditEntry.objects.filter(action="connector.update").latest("pk")
    assert "connection.tenants.0.token" in json.dumps(entry.changes)

    renamed = created | {"connection": {"tenants": [{"name": "new", "token": MASK}], "keys": [MASK]}}
    for answer in (client.put(url, renamed, format="json"), client.post(f"{url}test/", renamed, format="json")):
        assert answer.status_code == 400
        assert set(answer.json()["errors"]) == {"connection.tenants.0.token", "connection.keys.0"}
        assert "enter it again" in answer.json()["errors"]["connection.keys.0"][0]


def test_a_check_that_fails_in_an_undeclared_way_is_answered_in_a_sentence(
    client: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(connection: _Tenants) -> str:
        raise LookupError(f"No tenant has {connection.tenants[0].token.get_secret_value()}")

    monkeypatch.setitem(domain.connectors._classes, "tenants", _TenantsConnector)
    monkeypatch.setattr(_TenantsConnector, "check", staticmethod(fails))
    body = {"type": "tenants", "connection": {"tenants": [{"name": "a", "token": "t0p-a"}]}}
    answer = client.post(f"{URL}test/", body, format="json")
    assert answer.status_code == 400
    sentence = f"The check failed unexpectedly: LookupError: No tenant has {MASK}."
    assert answer.json()["errors"] == {"connection": [sentence]}


@pytest.mark.parametrize("method", ["hosts", "connectors"])
def test_a_connector_type_that_fails_while_it_is_saved_is_answered_in_a_sentence(
    client: APIClient, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def fails(connection: _Tenants) -> Any:
        raise LookupError(f"No tenant has {connection.tenants[0].token.get_secret_value()}")

    monkeypatch.setitem(domain.connectors._classes, "tenants", _TenantsConnector)
    monkeypatch.setattr(_Tenants, method, fails)
    body = {"name": "Mine", "type": "tenants", "connection": {"tenants": [{"name": "a", "token": "t0p-a"}]}}
    for address in (URL, f"{URL}test/"):
        answer = client.post(address, body, format="json")
        assert answer.status_code == 400
        (sentence,) = answer.json()["errors"]["connection"]
        assert sentence.startswith("The connector type tenants fails with this connection (LookupError)")
        assert "t0p-a" not in sentence
    assert not Connector.objects.exists()
