import threading

import pytest
from django.db import connection
from rest_framework.test import APIClient

from backend.apps.connectors.models import Connector
from backend.apps.workspaces.models import Workspace
from tests import factories
from tests.waiting import LIMIT_SECONDS


@pytest.mark.django_db
@pytest.mark.parametrize("kind", ["connectors", "pipelines"])
def test_an_overtaken_change_is_refused(client: APIClient, workspace: Workspace, kind: str) -> None:
    make = factories.make_connector if kind == "connectors" else factories.make_pipeline
    url = f"/api/v1/{kind}/{make(workspace).pk}/"
    read = client.get(url)
    assert read["ETag"] == read.json()["etag"]
    changed = read.json() | {"name": "First"}
    first = client.put(url, changed, format="json", headers={"If-Match": read["ETag"]})
    assert first.status_code == 200, first.json()
    assert first["ETag"] != read["ETag"]
    second = client.put(url, changed | {"name": "Second"}, format="json", headers={"If-Match": read["ETag"]})
    assert second.status_code == 412
    assert "Read it again" in second.json()["detail"]
    assert client.delete(url, headers={"If-Match": read["ETag"]}).status_code == 412
    assert client.get(url).json()["name"] == "First"
    assert client.delete(url, headers={"If-Match": first["ETag"]}).status_code == 204


@pytest.mark.django_db(transaction=True)
def test_of_two_editors_at_the_same_time_one_is_refused(workspace: Workspace) -> None:
    connector = factories.make_connector(workspace)
    url, user = f"/api/v1/connectors/{connector.pk}/", factories.admin_of(workspace)
    start, answers = threading.Barrier(2), []

    def save(name: str) -> None:
        client = APIClient()
        client.force_login(user)
        read = client.get(url)
        start.wait(LIMIT_SECONDS)
        changed = read.json() | {"name": name}
        answers.append(client.put(url, changed, format="json", headers={"If-Match": read["ETag"]}).status_code)
        connection.close()

    threads = [threading.Thread(target=save, args=(name,)) for name in ("Ana", "Bia")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    assert sorted(answers) == [200, 412]
    assert Connector.objects.get(pk=connector.pk).name in ("Ana", "Bia")
