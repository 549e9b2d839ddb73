"""Signing in through a real Keycloak: code flow with PKCE, bearer tokens, rotation, back-channel logout."""

import html
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import requests
from django.contrib.sessions.models import Session
from django.utils import timezone
from rest_framework.test import APIClient

from backend.api_calls.api import System
from backend.apps.audit.models import AuditEntry
from backend.apps.connectors.secrets import cipher
from backend.apps.identity.models import ProviderSession
from backend.apps.identity.renewal import sessions_expire
from backend.apps.workspaces.models import Membership, User, Workspace
from backend.domain.connector import RuntimeConnector
from backend.domain.transforms.call import Call
from tests import factories
from tests.infra import KEYCLOAK_REALM
from tests.integration.connectors.suites.calls import METADATA
from tests.keycloak import Keycloak, keycloak
from tests.waiting import LIMIT_SECONDS, wait_until

__all__ = ["keycloak"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def console(live_server: Any, keycloak: Keycloak) -> Iterator[str]:
    url = str(live_server.url).replace("localhost", "127.0.0.1")
    [client] = keycloak.admin("GET", "/clients?clientId=headrace").json()
    client["attributes"]["backchannel.logout.url"] = f"{url}/oidc/backchannel-logout/"
    keycloak.admin("PUT", f"/clients/{client['id']}", client)
    yield url
    keycloak.admin("POST", "/logout-all")


def sign_in(console: str, username: str, password: str | None = None) -> tuple[requests.Session, requests.Response]:
    """As a browser does it: to Keycloak, its form, and back."""
    browser = requests.Session()
    page = browser.get(f"{console}/oidc/authenticate/?next=/pipelines", timeout=LIMIT_SECONDS)
    assert page.url.startswith(KEYCLOAK_REALM)
    assert "code_challenge_method=S256" in page.url
    action = html.unescape(re.search(r'action="([^"]+)"', page.text).group(1))  # type: ignore[union-attr]
    for cookie in browser.cookies:  # browsers take loopback for secure, this client does not
        cookie.secure = False
    form = {"username": username, "password": password or f"{username}-password"}
    return browser, browser.post(action, form, timeout=LIMIT_SECONDS)


def me(browser: requests.Session, console: str) -> requests.Response:
    return browser.get(f"{console}/api/v1/me/", timeout=LIMIT_SECONDS)


def test_a_person_signs_in_with_the_roles_that_keycloak_grants(console: str) -> None:
    browser, landed = sign_in(console, "alice")
    assert landed.url == f"{console}/pipelines"
    assert me(browser, console).json() == {
        "username": "alice",
        "installation_admin": False,
        "workspaces": [{"slug": "main", "name": "main", "role": "admin"}],
    }
    assert browser.get(f"{console}/api/v1/audit/", timeout=LIMIT_SECONDS).status_code == 200
    bob, _ = sign_in(console, "bob")
    assert me(bob, console).json()["workspaces"][0]["role"] == "viewer"
    assert bob.get(f"{console}/api/v1/audit/", timeout=LIMIT_SECONDS).status_code == 403
    assert set(AuditEntry.objects.filter(action="session.sign_in").values_list("actor", flat=True)) == {"alice", "bob"}


def test_a_wrong_password_stays_at_keycloak(console: str) -> None:
    browser, answer = sign_in(console, "alice", "wrong")
    assert answer.url.startswith(KEYCLOAK_REALM)
    assert me(browser, console).status_code == 401


def test_an_account_that_has_the_same_name_is_somebody_else(console: str) -> None:
    local = factories.make_user()
    User.objects.filter(pk=local.pk).update(username="alice")
    browser, _ = sign_in(console, "alice")
    assert me(browser, console).json()["username"].startswith("alice-")


def test_what_was_not_asked_for_is_refused(console: str) -> None:
    browser = requests.Session()
    browser.get(f"{console}/oidc/authenticate/", timeout=LIMIT_SECONDS)
    for query in ("code=x&state=y", "error=access_denied&state=y"):
        answer = browser.get(f"{console}/oidc/callback/?{query}", timeout=LIMIT_SECONDS, allow_redirects=False)
        assert (answer.status_code, answer.headers["Location"]) == (302, "/login?failed=provider")


def test_roles_follow_keycloak_at_the_next_sign_in(console: str, keycloak: Keycloak) -> None:
    sign_in(console, "bob")
    bob = User.objects.get(username="bob")
    other = factories.make_workspace()
    Membership.objects.create(user=bob, workspace=other, role="admin")
    browser, _ = sign_in(console, "bob")
    assert [one["slug"] for one in me(browser, console).json()["workspaces"]] == ["main"]
    assert AuditEntry.objects.filter(action="membership.sync", workspace_id=other.pk).exists()


def test_signing_out_at_keycloak_signs_out_here_at_once(console: str, keycloak: Keycloak) -> None:
    browser, _ = sign_in(console, "alice")
    assert me(browser, console).status_code == 200
    session_key = browser.cookies["sessionid"]
    keycloak.admin("POST", f"/users/{keycloak.user_id('alice')}/logout")
    wait_until(lambda: me(browser, console).status_code == 401)
    assert not ProviderSession.objects.exists()
    assert not Session.objects.filter(session_key=session_key).exists()


def test_signing_out_here_leads_to_keycloak(console: str) -> None:
    browser, _ = sign_in(console, "alice")
    headers = {"X-CSRFToken": me(browser, console).cookies["csrftoken"], "Referer": console}
    answer = browser.delete(f"{console}/api/v1/session/", headers=headers, timeout=LIMIT_SECONDS)
    assert answer.json()["redirect"].startswith(f"{KEYCLOAK_REALM}/protocol/openid-connect/logout?")
    assert me(browser, console).status_code == 401


def test_a_forged_logout_is_refused(console: str, keycloak: Keycloak) -> None:
    browser, _ = sign_in(console, "alice")
    for token in ("", "a.b.c", keycloak.access_token("alice")):
        answer = requests.post(f"{console}/oidc/backchannel-logout/", {"logout_token": token}, timeout=LIMIT_SECONDS)
        assert answer.status_code == 400
    assert me(browser, console).status_code == 200


def due() -> None:
    """As if five minutes had passed since the provider was last checked."""
    ProviderSession.objects.update(next_check_at=timezone.now())


def checked() -> bool:
    return ProviderSession.objects.get().next_check_at > timezone.now() + timedelta(minutes=4)


def test_who_was_disabled_at_keycloak_is_signed_out_while_using_the_console(console: str, keycloak: Keycloak) -> None:
    browser, _ = sign_in(console, "bob")
    session_key = browser.cookies["sessionid"]
    bob = f"/users/{keycloak.user_id('bob')}"
    keycloak.admin("PUT", bob, {"enabled": False})
    try:
        assert me(browser, console).status_code == 200  # not checked yet
        due()
        assert me(browser, console).status_code == 401
    finally:
        keycloak.admin("PUT", bob, {"enabled": True})
    assert not ProviderSession.objects.exists()
    assert not Session.objects.filter(session_key=session_key).exists()
    assert AuditEntry.objects.filter(action="session.end", actor="bob").exists()


def test_roles_follow_keycloak_while_the_console_is_used(console: str, keycloak: Keycloak) -> None:
    browser, _ = sign_in(console, "bob")
    mappings = f"/users/{keycloak.user_id('bob')}/role-mappings/realm"
    more = [keycloak.admin("GET", "/roles/platform-admin").json()]
    keycloak.admin("POST", mappings, more)
    try:
        assert me(browser, console).json()["workspaces"][0]["role"] == "viewer"
        due()
        assert me(browser, console).json()["workspaces"][0]["role"] == "admin"
    finally:
        keycloak.admin("DELETE", mappings, more)


def test_requests_that_come_together_use_a_refresh_token_once(console: str, keycloak: Keycloak) -> None:
    realm = keycloak.admin("GET", "").json()
    keycloak.admin("PUT", "", realm | {"revokeRefreshToken": True, "refreshTokenMaxReuse": 0})
    try:
        browser, _ = sign_in(console, "alice")
        for _ in range(3):
            due()
            with ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda _: me(browser, console).status_code, range(16)))
            assert set(answers) == {200}
            assert checked()
    finally:
        keycloak.admin("PUT", "", realm)


def test_a_provider_that_does_not_answer_signs_nobody_out(console: str, settings: Any) -> None:
    browser, _ = sign_in(console, "alice")
    settings.OIDC_OP_TOKEN_ENDPOINT = "http://127.0.0.1:1/"
    due()
    assert me(browser, console).status_code == 200
    assert timezone.now() < ProviderSession.objects.get().next_check_at < timezone.now() + timedelta(minutes=2)


def test_a_refresh_token_rests_sealed_and_leaves_with_its_session(console: str) -> None:
    sign_in(console, "alice")
    sealed = bytes(ProviderSession.objects.get().refresh_token)
    assert cipher().open(sealed).startswith(b"eyJ")
    assert b"eyJ" not in sealed
    sessions_expire()
    assert ProviderSession.objects.exists()
    Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
    sessions_expire()
    assert not ProviderSession.objects.exists()


def bearer(token: str) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
    return client


def test_bearer_tokens_are_accepted_with_their_roles(keycloak: Keycloak) -> None:
    alice, bob = bearer(keycloak.access_token("alice")), bearer(keycloak.access_token("bob"))
    connector = {"name": "ERP", "type": "http", "connection": {"url": "https://example.com/"}}
    assert bob.post("/api/v1/connectors/", connector, format="json").status_code == 403
    assert alice.post("/api/v1/connectors/", connector, format="json").status_code == 201
    assert bob.get("/api/v1/connectors/").json()["results"][0]["name"] == "ERP"
    assert Workspace.objects.get(slug="main").members.count() == 2


def test_tokens_for_others_changed_or_unsigned_are_refused(keycloak: Keycloak) -> None:
    header, body, signature = keycloak.access_token("alice").split(".")
    foreign = keycloak.access_token("alice", client="other")
    for token in (foreign, f"{header}.{body}.{signature[:-4]}AAAA", f"eyJhbGciOiJub25lIn0.{body}.", "nonsense"):
        answer = bearer(token).get("/api/v1/connectors/")
        assert answer.status_code == 401, token
        assert "token is not accepted" in answer.json()["detail"]


def test_keys_that_keycloak_rotates_in_are_found(keycloak: Keycloak) -> None:
    assert bearer(keycloak.access_token("alice")).get("/api/v1/connectors/").status_code == 200
    realm = keycloak.admin("GET", "").json()["id"]
    keycloak.admin(
        "POST",
        "/components",
        {
            "name": "rotated",
            "providerId": "rsa-generated",
            "providerType": "org.keycloak.keys.KeyProvider",
            "parentId": realm,
            "config": {"priority": ["500"], "algorithm": ["RS256"]},
        },
    )
    token = keycloak.access_token("alice")
    wait_until(lambda: bearer(token).get("/api/v1/connectors/").status_code == 200, interval=0.5)


def test_local_accounts_can_be_switched_off(keycloak: Keycloak, settings: Any) -> None:
    client = APIClient()
    assert client.get("/api/v1/session/").json() == {"local": True, "provider_url": "/oidc/authenticate/"}
    user = factories.make_user()
    settings.CONSOLE = settings.CONSOLE.model_copy(update={"local_login": False})
    answer = client.post("/api/v1/session/", {"username": user.username, "password": "a-good-password"}, format="json")
    assert answer.status_code == 403
    assert client.get("/api/v1/session/").json()["local"] is False


async def test_an_api_of_the_provider_is_called_with_client_credentials(keycloak: Keycloak) -> None:
    openid = f"{KEYCLOAK_REALM}/protocol/openid-connect"
    client = {"client_id": "machine", "client_secret": "machine-secret", "scope": "openid"}
    connection = {"url": openid, "authentication": {"type": "oauth", "token_url": f"{openid}/token", **client}}
    step = {"type": "call", "connector": str(uuid4()), "name": "who", "to": "who", "options": {"path": "/userinfo"}}
    system = System(Call.model_validate(step), RuntimeConnector(type="http", connection=connection))
    answer = json.loads(await system.ask(system.request({}, METADATA)))
    await system.close()
    assert answer["preferred_username"] == "service-account-machine"
