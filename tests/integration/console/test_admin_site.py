from typing import Any

import pytest
from django.contrib import admin
from django.contrib.staticfiles import finders
from django.test import Client

from backend.apps.audit.models import AuditEntry
from backend.apps.workspaces.models import ApiKey, User, Workspace
from backend.apps.workspaces.services import api_key_create
from tests import factories
from tests.factories import make_letter

pytestmark = pytest.mark.django_db


@pytest.fixture
def site(workspace: Workspace) -> Client:
    client = Client()
    client.force_login(factories.make_user(is_staff=True, is_superuser=True))
    return client


def test_every_page_opens(site: Client, workspace: Workspace) -> None:
    factories.make_pipeline(workspace)
    for model in admin.site._registry:
        url = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        assert site.get(url, {"q": "x"} if admin.site._registry[model].search_fields else {}).status_code == 200
        first = model._default_manager.first()
        if first is not None:
            assert site.get(f"{url}{first.pk}/change/").status_code == 200


def test_it_has_the_console_s_colours_and_names_things_in_plain_words(site: Client, workspace: Workspace) -> None:
    index = site.get("/admin/").content.decode()
    assert "headrace-admin.css" in index
    assert finders.find("headrace-admin.css")
    for name in (
        "Audit entries",
        "API keys",
        "Circuit breaker events",
        "Usage by minute",
        "Read gateway",
        "Lost messages",
    ):
        assert name in index, name


def test_rows_are_found_by_their_pipeline_and_show_its_name(site: Client, workspace: Workspace) -> None:
    pipeline = factories.make_pipeline(workspace)
    make_letter(pipeline)
    page = site.get("/admin/deliveries/deadletter/", {"q": str(pipeline.pk)}).content.decode()
    assert pipeline.name in page
    assert pipeline.name not in site.get("/admin/deliveries/deadletter/", {"q": "nothing"}).content.decode()


def test_what_the_services_decide_cannot_be_changed_past_them(site: Client, workspace: Workspace) -> None:
    pipeline = factories.make_pipeline(workspace)
    for action in ("change", "delete"):
        assert site.post(f"/admin/pipelines/pipeline/{pipeline.pk}/{action}/", {"post": "yes"}).status_code == 403
    assert site.post(f"/admin/workspaces/workspace/{workspace.pk}/delete/", {"post": "yes"}).status_code == 403


def test_a_key_is_revoked_as_by_the_api(site: Client, workspace: Workspace) -> None:
    key, _ = api_key_create(workspace=workspace, actor=factories.admin_of(workspace), name="shop", scopes=["read"])
    site.post("/admin/workspaces/apikey/", {"action": "revoke", "_selected_action": [str(key.pk)]})
    assert ApiKey.objects.get().revoked_at is not None
    assert AuditEntry.objects.filter(action="api_key.revoke", workspace_id=workspace.pk).exists()


def test_accounts_and_members_are_audited_without_their_passwords(site: Client, workspace: Workspace) -> None:
    account = {"username": "ana", "usable_password": "true", "password1": "pl4nted-pass", "password2": "pl4nted-pass"}
    assert site.post("/admin/workspaces/user/add/", account).status_code == 302
    ana = User.objects.get(username="ana")
    [kept] = workspace.membership_set.all()
    form: dict[str, Any] = {"slug": workspace.slug, "name": "Renamed"}
    form |= {"membership_set-TOTAL_FORMS": 2, "membership_set-INITIAL_FORMS": 1}
    form |= {f"membership_set-0-{k}": v for k, v in (("id", kept.pk), ("user", kept.user_id), ("role", kept.role))}
    form |= {"membership_set-0-workspace": workspace.pk, "membership_set-1-workspace": workspace.pk}
    form |= {"membership_set-1-user": ana.pk, "membership_set-1-role": "viewer"}
    assert site.post(f"/admin/workspaces/workspace/{workspace.pk}/change/", form).status_code == 302
    recorded = {
        entry.action: entry for entry in AuditEntry.objects.filter(action__in=["user.create", "workspace.update"])
    }
    assert recorded["user.create"].object_name == "ana"
    assert "ana" in str(recorded["workspace.update"].changes)
    assert "pl4nted" not in str(list(AuditEntry.objects.values()))
