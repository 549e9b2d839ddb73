from collections.abc import Callable

import pytest
from rest_framework.test import APIClient

from backend.apps.audit.models import AuditEntry
from backend.apps.workspaces.models import Membership, Role, User, Workspace
from tests import factories

URL = "/api/v1/members/"

pytestmark = pytest.mark.django_db


def test_a_member_is_added_changed_and_removed(client: APIClient, workspace: Workspace) -> None:
    person = factories.make_user()
    added = client.post(URL, {"username": person.username, "role": "viewer"}, format="json").json()
    assert (added["username"], added["role"], added["from_provider"]) == (person.username, "viewer", False)
    assert client.patch(f"{URL}{added['id']}/", {"role": "operator"}, format="json").json()["role"] == "operator"
    assert {member["username"] for member in client.get(URL).json()["results"]} == {
        person.username,
        factories.admin_of(workspace).username,
    }
    assert client.delete(f"{URL}{added['id']}/").status_code == 204
    assert not Membership.objects.filter(user=person).exists()
    actions = AuditEntry.objects.filter(object_name=person.username).order_by("at").values_list("action", flat=True)
    assert list(actions) == ["membership.add", "membership.change", "membership.remove"]


def test_strangers_and_members_are_refused_at_the_field(client: APIClient, workspace: Workspace) -> None:
    for username in ("nobody", factories.admin_of(workspace).username):
        answer = client.post(URL, {"username": username, "role": "viewer"}, format="json")
        assert (answer.status_code, list(answer.json()["errors"])) == (400, ["username"])
    answer = client.post(URL, {"username": "nobody", "role": "king"}, format="json")
    assert list(answer.json()["errors"]) == ["role"]


def test_the_last_admin_stays(client: APIClient, workspace: Workspace) -> None:
    admin = Membership.objects.get(workspace=workspace)
    assert client.patch(f"{URL}{admin.pk}/", {"role": "editor"}, format="json").status_code == 409
    assert client.delete(f"{URL}{admin.pk}/").status_code == 409
    factories.add_member(workspace, Role.ADMIN)
    assert client.delete(f"{URL}{admin.pk}/").status_code == 204


def test_the_identity_provider_decides_about_its_people(client: APIClient, workspace: Workspace) -> None:
    person = factories.add_member(workspace, Role.VIEWER)
    User.objects.filter(pk=person.pk).update(subject="abc")
    member = Membership.objects.get(user=person)
    answer = client.patch(f"{URL}{member.pk}/", {"role": "editor"}, format="json")
    assert (answer.status_code, person.username in answer.json()["detail"]) == (409, True)


def test_only_admins_change_members_of_their_own_workspace(
    client: APIClient, workspace: Workspace, client_of: Callable[[User], APIClient]
) -> None:
    editor = client_of(factories.add_member(workspace, Role.EDITOR))
    assert editor.get(URL).status_code == 200
    assert editor.post(URL, {"username": "x", "role": "viewer"}, format="json").status_code == 403
    foreign = Membership.objects.get(workspace=factories.make_workspace())
    assert client.delete(f"{URL}{foreign.pk}/").status_code == 404


def test_the_pages_say_how_many_members_match(client: APIClient, workspace: Workspace) -> None:
    factories.add_member(factories.make_workspace(), Role.VIEWER)
    people = [factories.add_member(workspace, Role.VIEWER).username for _ in range(2)]
    first = client.get(URL, {"page_size": 2}).json()
    second = client.get(first["next"]).json()
    assert [(page["count"], len(page["results"])) for page in (first, second)] == [(3, 2), (3, 1)]
    names = {member["username"] for page in (first, second) for member in page["results"]}
    assert names == {*people, factories.admin_of(workspace).username}
    found = client.get(URL, {"search": people[0]}).json()
    assert (found["count"], [member["username"] for member in found["results"]]) == (1, people[:1])
