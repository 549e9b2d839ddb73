"""Secrets in a real OpenBao, which speaks Vault's API."""

import io
import json
import socket
from collections.abc import Callable
from typing import Any

import hvac
import pytest
from django.core.management import call_command
from django.db import transaction
from hvac.exceptions import InvalidPath
from pydantic import SecretStr
from rest_framework.test import APIClient

from backend.apps.config_files import services as config_files
from backend.apps.connectors.models import Connector, StoredSecret
from backend.apps.connectors.secret_store import connection_with_secrets
from backend.apps.connectors.secrets import UnreadableSecretError
from backend.apps.connectors.services import connector_update
from backend.apps.connectors.vault import Vault, VaultUnavailableError
from backend.apps.manager.grpc import _runtime_config
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.services import pipeline_publish
from backend.apps.workspaces.models import Workspace
from backend.domain.errors import ConfigError
from tests import factories
from tests.openbao import ADDRESS, TOKEN, bao, openbao
from tests.ports import free_ports

__all__ = ["bao", "openbao"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("secret_keys")]

BEARER = {"type": "bearer", "token": "t0p-secret"}


@pytest.fixture
def configure(settings: Any, bao: hvac.Client) -> Callable[..., None]:
    """Tells the console of the OpenBao."""

    def with_vault(**fields: Any) -> None:
        secret = {
            name: SecretStr(value) for name, value in fields.items() if name in ("vault_token", "vault_secret_id")
        }
        settings.CONSOLE = settings.CONSOLE.model_copy(update={"vault_url": ADDRESS, **fields, **secret})

    return with_vault


@pytest.fixture
def in_vault(configure: Callable[..., None]) -> None:
    configure(vault_token=TOKEN)


def sealed_in(bao: hvac.Client, connector: Connector, version: int | None = None) -> str:
    path = f"headrace/connectors/{connector.pk}"
    answer = bao.secrets.kv.v2.read_secret_version(path, version=version, raise_on_deleted_version=True)
    return str(answer["data"]["data"]["sealed"])


def put(bao: hvac.Client, workspace: Workspace, path: str, **values: str) -> None:
    bao.secrets.kv.v2.create_or_update_secret(f"headrace/workspaces/{workspace.slug}/{path}", values)


@pytest.mark.usefixtures("in_vault")
def test_a_connectors_secrets_rest_in_vault_sealed(workspace: Workspace, bao: hvac.Client) -> None:
    connector = factories.make_connector(workspace, authentication=BEARER)
    stored = StoredSecret.objects.get(connector=connector)
    assert (stored.sealed, stored.vault_version) == (None, 1)
    assert "t0p-secret" not in sealed_in(bao, connector)
    assert connection_with_secrets(connector)["authentication"]["token"] == "t0p-secret"


@pytest.mark.usefixtures("in_vault")
def test_a_save_that_is_undone_leaves_the_former_secret_in_force(workspace: Workspace, bao: hvac.Client) -> None:
    connector = factories.make_connector(workspace, authentication=BEARER)
    changed = {"url": connector.connection["url"], "authentication": {"type": "bearer", "token": "other"}}

    def undone() -> None:
        with transaction.atomic():
            actor = factories.admin_of(workspace)
            connector_update(connector=connector, actor=actor, name="Changed", connection=changed)
            assert connection_with_secrets(connector)["authentication"]["token"] == "other"
            raise InterruptedError

    with pytest.raises(InterruptedError):
        undone()
    assert sealed_in(bao, connector, 2)
    connector.refresh_from_db()
    assert connection_with_secrets(connector)["authentication"]["token"] == "t0p-secret"


def versions_in(bao: hvac.Client, connector: Connector) -> list[int]:
    """The versions of a connector's secrets that Vault holds."""
    metadata = bao.secrets.kv.v2.read_secret_metadata(f"headrace/connectors/{connector.pk}")["data"]["versions"]
    return sorted(int(number) for number, version in metadata.items() if not version["destroyed"])


def connectors_in(bao: hvac.Client) -> set[str]:
    try:
        return set(bao.secrets.kv.v2.list_secrets("headrace/connectors")["data"]["keys"])
    except InvalidPath:
        return set()


def documents(*connectors: tuple[str, str], pipelines: str = "") -> str:
    """Config files with connectors by name and token reference."""
    connector_documents: list[dict[str, Any]] = [
        {
            "kind": "connector",
            "name": name,
            "type": "http",
            "connection": {"url": "http://127.0.0.1:1/", "authentication": {"type": "bearer", "token": f"env:{token}"}},
        }
        for name, token in connectors
    ]
    return config_files.dump(connector_documents) + pipelines


def applied(workspace: Workspace, text: str, **options: Any) -> list[config_files.Step]:
    environment = {"SECRET_OLD": "t0p-secret", "SECRET_NEW": "an0ther"}
    actor = factories.admin_of(workspace)
    parsed = config_files.parse(text)
    return config_files.apply(workspace=workspace, actor=actor, documents=parsed, environment=environment, **options)


@pytest.mark.usefixtures("in_vault")
def test_a_dry_run_writes_nothing_to_vault(
    client: APIClient, workspace: Workspace, bao: hvac.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = connectors_in(bao)
    assert [step.action for step in applied(workspace, documents(("ERP", "SECRET_OLD")), dry_run=True)] == ["create"]
    assert connectors_in(bao) == before
    applied(workspace, documents(("ERP", "SECRET_OLD")))
    connector = Connector.objects.get()
    # Vault keeps ten versions: as many dry runs must not push out the one in use.
    changed = documents(("ERP", "SECRET_NEW"), ("CRM", "SECRET_NEW"))
    for _ in range(11):
        assert len(applied(workspace, changed, dry_run=True)) == 2
    monkeypatch.setenv("SECRET_NEW", "an0ther")
    assert len(client.post("/api/v1/config-files/", {"yaml": changed}, format="json").json()) == 2
    assert versions_in(bao, connector) == [1]
    assert connectors_in(bao) == before | {str(connector.pk)}
    assert connection_with_secrets(connector)["authentication"]["token"] == "t0p-secret"


@pytest.mark.usefixtures("in_vault")
def test_an_apply_that_is_refused_leaves_nothing_in_vault(workspace: Workspace, bao: hvac.Client) -> None:
    applied(workspace, documents(("ERP", "SECRET_OLD")))
    connector, before = Connector.objects.get(), connectors_in(bao)
    refused = "---\nkind: pipeline\nname: Bad\nconfig: {outputs: [{name: out, connector: Nobody}]}\n"
    with pytest.raises(ConfigError, match="Nobody"):
        applied(workspace, documents(("ERP", "SECRET_NEW"), ("CRM", "SECRET_NEW"), pipelines=refused))
    assert (versions_in(bao, connector), connectors_in(bao)) == ([1], before)
    assert connection_with_secrets(connector)["authentication"]["token"] == "t0p-secret"
    applied(workspace, documents(("ERP", "SECRET_NEW"), ("CRM", "SECRET_NEW")))
    assert versions_in(bao, connector) == [1, 2]
    assert set(StoredSecret.objects.values_list("sealed", flat=True)) == {None}
    for connector in Connector.objects.all():
        assert connection_with_secrets(connector)["authentication"]["token"] == "an0ther"


@pytest.mark.usefixtures("in_vault")
def test_what_vault_took_before_it_went_away_is_taken_back(
    workspace: Workspace, bao: hvac.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied(workspace, documents(("ERP", "SECRET_OLD")))
    connector, before = Connector.objects.get(), connectors_in(bao)
    write, written = Vault.write, []

    def write_twice(self: Vault, name: str, sealed: bytes) -> int:
        if len(written) == 2:
            raise VaultUnavailableError("Vault cannot be reached.")
        written.append(name)
        return write(self, name, sealed)

    monkeypatch.setattr(Vault, "write", write_twice)
    with pytest.raises(VaultUnavailableError):
        applied(workspace, documents(("ERP", "SECRET_NEW"), ("CRM", "SECRET_NEW"), ("Shop", "SECRET_NEW")))
    assert len(written) == 2
    assert (versions_in(bao, connector), connectors_in(bao)) == ([1], before)
    assert list(Connector.objects.all()) == [connector]
    assert connection_with_secrets(connector)["authentication"]["token"] == "t0p-secret"


@pytest.mark.usefixtures("in_vault")
def test_a_deleted_connectors_secrets_are_gone_from_vault(
    client: APIClient, workspace: Workspace, bao: hvac.Client, on_commit: Any
) -> None:
    connector = factories.make_connector(workspace, authentication=BEARER)
    with on_commit():
        assert client.delete(f"/api/v1/connectors/{connector.pk}/").status_code == 204
    with pytest.raises(InvalidPath):
        sealed_in(bao, connector)


def test_secrets_move_to_where_they_are_to_rest(workspace: Workspace, configure: Callable[..., None]) -> None:
    connector = factories.make_connector(workspace, authentication=BEARER)
    configure(vault_token=TOKEN)
    assert connection_with_secrets(connector)["authentication"]["token"] == "t0p-secret"
    call_command("secrets_rotate", stdout=(printed := io.StringIO()))
    assert "1 secrets" in printed.getvalue()
    assert StoredSecret.objects.get().sealed is None
    assert connection_with_secrets(connector)["authentication"]["token"] == "t0p-secret"
    configure(vault_token=TOKEN, vault_url="")
    with pytest.raises(UnreadableSecretError, match="HEADRACE_VAULT_URL"):
        connection_with_secrets(connector)


def test_an_app_role_needs_no_token_and_signs_in_again(
    workspace: Workspace, bao: hvac.Client, configure: Callable[..., None]
) -> None:
    bao.sys.enable_auth_method("approle")
    rules = 'path "secret/*" { capabilities = ["create", "read", "update", "delete"] }'
    bao.sys.create_or_update_acl_policy("headrace", rules)
    bao.auth.approle.create_or_update_approle("headrace", token_policies=["headrace"], token_num_uses=3)
    role_id = bao.auth.approle.read_role_id("headrace")["data"]["role_id"]
    secret_id = bao.auth.approle.generate_secret_id("headrace")["data"]["secret_id"]
    configure(vault_role_id=role_id, vault_secret_id=secret_id)
    connector = factories.make_connector(workspace, authentication=BEARER)
    for _ in range(5):  # more often than one token may be used
        assert connection_with_secrets(connector)["authentication"]["token"] == "t0p-secret"


@pytest.mark.usefixtures("in_vault")
def test_a_reference_is_read_whenever_it_is_used(client: APIClient, workspace: Workspace, bao: hvac.Client) -> None:
    put(bao, workspace, "erp", token="first")
    authentication = {"type": "bearer", "token": "vault:erp#token"}
    body = {
        "name": "ERP",
        "type": "http",
        "connection": {"url": "http://127.0.0.1:1/", "authentication": authentication},
    }
    answer = client.post("/api/v1/connectors/", body, format="json")
    assert answer.status_code == 201
    connector = Connector.objects.get()
    assert connection_with_secrets(connector)["authentication"]["token"] == "first"
    put(bao, workspace, "erp", token="second")
    assert connection_with_secrets(connector)["authentication"]["token"] == "second"
    [document] = config_files.export(workspace)
    assert document["connection"]["authentication"]["token"] == "vault:erp#token"
    text = config_files.dump([document])
    assert (
        config_files.apply(workspace=workspace, actor=factories.admin_of(workspace), documents=config_files.parse(text))
        == []
    )


@pytest.mark.parametrize(
    "reference",
    ["vault:nothing#token", "vault:erp#other", "vault:../other/erp#token", "vault:erp/../../other/erp#token"],
)
@pytest.mark.usefixtures("in_vault")
def test_a_reference_to_nothing_or_to_others_is_refused_at_its_field(
    client: APIClient, workspace: Workspace, bao: hvac.Client, reference: str
) -> None:
    put(bao, workspace, "erp", token="first")
    bao.secrets.kv.v2.create_or_update_secret("headrace/workspaces/other/erp", {"token": "theirs"})
    authentication = {"type": "bearer", "token": reference}
    body = {
        "name": "ERP",
        "type": "http",
        "connection": {"url": "http://127.0.0.1:1/", "authentication": authentication},
    }
    answer = client.post("/api/v1/connectors/", body, format="json")
    assert answer.status_code == 400
    assert list(answer.json()["errors"]) == ["connection.authentication.token"]


def test_without_a_vault_a_reference_is_refused(client: APIClient) -> None:
    authentication = {"type": "bearer", "token": "vault:erp#token"}
    body = {
        "name": "ERP",
        "type": "http",
        "connection": {"url": "http://127.0.0.1:1/", "authentication": authentication},
    }
    answer = client.post("/api/v1/connectors/", body, format="json")
    assert "HEADRACE_VAULT_URL" in answer.json()["errors"]["connection.authentication.token"][0]


def test_while_vault_is_away_nothing_is_half_saved(client: APIClient, configure: Callable[..., None]) -> None:
    configure(vault_token=TOKEN, vault_url=f"http://127.0.0.1:{free_ports(1)[0]}")
    connection = {"url": "http://127.0.0.1:1/", "authentication": BEARER}
    client.raise_request_exception = False
    answer = client.post(
        "/api/v1/connectors/", {"name": "ERP", "type": "http", "connection": connection}, format="json"
    )
    assert (answer.status_code, answer.json()["service"]) == (503, "Vault")
    assert not Connector.objects.exists()
    configure(vault_token="wrong")
    answer = client.post(
        "/api/v1/connectors/", {"name": "ERP", "type": "http", "connection": connection}, format="json"
    )
    assert (answer.status_code, answer.json()["service"]) == (503, "Vault")
    assert "t0p-secret" not in answer.content.decode()


def installation_token(bao: hvac.Client, allowed: Workspace) -> str:
    """Of an installation that may read what it has sealed, and one workspace's own secrets."""
    paths = ["connectors/*", f"workspaces/{allowed.slug}/*"]
    rules = "\n".join(f'path "secret/data/headrace/{path}" {{ capabilities = ["read"] }}' for path in paths)
    bao.sys.create_or_update_acl_policy("one-workspace", rules)
    return str(bao.auth.token.create(policies=["one-workspace"])["auth"]["client_token"])


def app_role(bao: hvac.Client, allowed: Workspace) -> dict[str, str]:
    if "approle/" not in bao.sys.list_auth_methods()["data"]:
        bao.sys.enable_auth_method("approle")
    installation_token(bao, allowed)  # for its policy
    bao.auth.approle.create_or_update_approle("one-workspace", token_policies=["one-workspace"])
    secret_id = bao.auth.approle.generate_secret_id("one-workspace")["data"]["secret_id"]
    return {
        "vault_role_id": bao.auth.approle.read_role_id("one-workspace")["data"]["role_id"],
        "vault_secret_id": secret_id,
    }


@pytest.mark.parametrize("signs_in", [False, True], ids=["token", "app-role"])
def test_a_reference_that_vault_forbids_fails_its_connector_alone(
    client: APIClient, workspace: Workspace, bao: hvac.Client, configure: Callable[..., None], signs_in: bool
) -> None:
    configure(vault_token=TOKEN)
    forbidden = factories.make_workspace()
    pipelines = []
    for one in (workspace, forbidden):
        put(bao, one, "erp", token="t0p-secret")
        connector = factories.make_connector(one, authentication={"type": "bearer", "token": "vault:erp#token"})
        pipelines.append(factories.make_pipeline(one, connector))
        pipeline_publish(pipeline=pipelines[-1], actor=factories.admin_of(one))
    if signs_in:
        configure(vault_token="", **app_role(bao, workspace))
    else:
        configure(vault_token=installation_token(bao, workspace))
    works, failed = (_runtime_config(str(pipeline.pk), 0) for pipeline in pipelines)
    assert works is not None
    assert failed is not None
    [sound], [broken] = works.connectors.values(), failed.connectors.values()
    assert json.loads(sound.connection)["authentication"]["token"] == "t0p-secret"
    assert f"does not let Headrace read secret/headrace/workspaces/{forbidden.slug}/erp" in broken.error
    pipelines[1].refresh_from_db()
    assert pipelines[1].failure == broken.error
    # A reference that Vault forbids is refused at its field; an installation that it rejects is an outage.
    body = {
        "name": "CRM", "type": "http",
        "connection": {"url": "http://127.0.0.1:1/", "authentication": {"type": "bearer", "token": "vault:crm#token"}},
    }  # fmt: skip
    bao.sys.create_or_update_acl_policy(
        "one-workspace", 'path "secret/data/headrace/connectors/*" { capabilities = ["read"] }'
    )
    answer = client.post("/api/v1/connectors/", body, format="json")
    assert "does not let Headrace read" in answer.json()["errors"]["connection.authentication.token"][0]
    configure(vault_token="wrong", vault_role_id="")
    with pytest.raises(VaultUnavailableError):
        _runtime_config(str(pipelines[0].pk), 0)


def test_a_vault_that_hangs_is_not_waited_for_by_each_call(
    workspace: Workspace, configure: Callable[..., None]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        configure(vault_token=TOKEN)
        connector = factories.make_connector(workspace, authentication=BEARER)
        configure(vault_token=TOKEN, vault_url=f"http://127.0.0.1:{hanging.getsockname()[1]}")
        with pytest.raises(VaultUnavailableError, match="Timeout"):
            connection_with_secrets(connector)
        with pytest.raises(VaultUnavailableError, match="a moment ago"):
            connection_with_secrets(connector)


@pytest.mark.usefixtures("in_vault")
def test_an_unreadable_secret_fails_its_pipeline_alone(client: APIClient, workspace: Workspace) -> None:
    broken, sound = (factories.make_connector(workspace, authentication=BEARER) for _ in range(2))
    pipelines = [factories.make_pipeline(workspace, connector) for connector in (broken, sound)]
    for pipeline in pipelines:
        pipeline_publish(pipeline=pipeline, actor=factories.admin_of(workspace))
    StoredSecret.objects.filter(connector=broken).update(vault_version=7)
    failed, works = (_runtime_config(str(pipeline.pk), 0) for pipeline in pipelines)
    assert failed is not None
    assert works is not None
    assert broken.name in failed.connectors[str(broken.pk)].error
    assert json.loads(works.connectors[str(sound.pk)].connection)["authentication"]["token"] == "t0p-secret"
    shown = {one["id"]: one["failure"] for one in client.get("/api/v1/pipelines/").json()["results"]}
    assert broken.name in shown[str(pipelines[0].pk)]
    assert shown[str(pipelines[1].pk)] == ""
    fixed = {"url": broken.connection["url"], "authentication": BEARER}
    connector_update(connector=broken, actor=factories.admin_of(workspace), name=broken.name, connection=fixed)
    mended = _runtime_config(str(pipelines[0].pk), 0)
    assert mended is not None
    assert mended.connectors[str(broken.pk)].error == ""
    assert not Pipeline.objects.exclude(failure="").exists()
