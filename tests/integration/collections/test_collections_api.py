"""Collections by REST."""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from backend.apps.audit.models import AuditEntry
from backend.apps.collections import selectors, services
from backend.apps.connectors.models import Connector
from backend.apps.workspaces.models import Role, User, Workspace
from backend.collections.table import Table
from backend.collections.writer import CollectionWriter, NewDocument
from tests import factories

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_server", "secret_keys")]


def location_of(collection: Connector) -> Any:
    return services.collection_store().location(str(collection.workspace_id), str(collection.pk))


def append(collection: Connector, documents: int, *, first: int = 0, partitions: int = 2) -> None:
    table = Table.create(location_of(collection), partitions=partitions, name="test")
    new = [
        NewDocument(n, 0, b"key-%d" % (n % 3), b'{"n": %d}' % n, (("message-id", b"m%d" % n),), n % 10 == 9)
        for n in range(first, first + documents)
    ]
    CollectionWriter(table, "topic/0").append(new, first + documents)


@pytest.fixture
def collection(workspace: Workspace) -> Connector:
    return factories.make_connector(workspace, "collection", partitions=2, keep_hours=24)


def test_a_collection_is_listed_with_what_it_holds(client: APIClient, collection: Connector) -> None:
    [empty] = client.get("/api/v1/collections/").json()["results"]
    assert (empty["name"], empty["partitions"], empty["documents"], empty["unavailable"]) == (collection.name, 2, 0, "")
    append(collection, 25)
    [listed] = client.get("/api/v1/collections/").json()["results"]
    assert (listed["documents"], listed["leader_epoch"]) == (25, 0)
    assert listed["bytes"] > 0
    assert listed["newest"]
    shown = client.get(f"/api/v1/collections/{collection.pk}/").json()
    assert (shown["keep_hours"], shown["keep_bytes"], shown["avro_schema"]) == (24, None, None)
    assert (shown["topic"], shown["table"]) == (collection.name.replace(" ", ".20"), location_of(collection).uri)
    places = [(part["partition"], part["start_offset"], part["end_offset"]) for part in shown["partition_states"]]
    assert places == [(0, 0, 25), (1, 0, 0)]


def test_documents_are_paged_from_the_newest(client: APIClient, collection: Connector) -> None:
    url = f"/api/v1/collections/{collection.pk}/documents/"
    assert client.get(url).json() == {"partition": 0, "results": [], "before": None}
    append(collection, 25)
    first = client.get(url, {"limit": 20}).json()
    assert [document["offset"] for document in first["results"]] == list(range(24, 4, -1))
    assert (first["results"][0]["value"], first["results"][0]["key"]) == ('{"n": 24}', "key-0")
    assert first["results"][5]["deleted"] is True
    assert first["results"][0]["headers"] == {"message-id": "m24"}
    second = client.get(url, {"limit": 20, "before": first["before"]}).json()
    assert [document["offset"] for document in second["results"]] == [4, 3, 2, 1, 0]
    assert second["before"] is None
    assert client.get(url, {"partition": 2}).json()["errors"] == {
        "partition": ["The collection has the partitions 0 to 1."]
    }
    assert client.get(url, {"limit": "x"}).status_code == 400
    assert client.get(url, {"nonsense": 1}).status_code == 400


def test_documents_are_found_by_their_key(client: APIClient, collection: Connector) -> None:
    append(collection, 25)
    append(collection, 5, first=25)
    url = f"/api/v1/collections/{collection.pk}/documents/"
    first = client.get(url, {"key": "key-1", "partition": 0, "limit": 8}).json()
    assert [document["offset"] for document in first["results"]] == list(range(28, 6, -3))
    second = client.get(url, {"key": "key-1", "partition": 0, "before": first["before"]}).json()
    assert [document["offset"] for document in second["results"]] == [4, 1]
    assert second["before"] is None
    assert client.get(url, {"key": "nobody", "partition": 0}).json()["results"] == []


def test_a_reset_empties_it_and_raises_the_epoch(client: APIClient, collection: Connector) -> None:
    url = f"/api/v1/collections/{collection.pk}/reset/"
    assert client.post(url).status_code == 409
    append(collection, 25)
    shown = client.post(url).json()
    assert (shown["documents"], shown["leader_epoch"]) == (0, 1)
    assert [(part["start_offset"], part["end_offset"]) for part in shown["partition_states"]] == [(25, 25), (0, 0)]
    assert AuditEntry.objects.filter(action="collection.reset").count() == 1


def test_it_is_deleted_unless_a_pipeline_uses_it(
    client: APIClient, collection: Connector, workspace: Workspace, on_commit: Any
) -> None:
    append(collection, 5)
    pipeline = factories.make_pipeline(workspace, collection)
    url = f"/api/v1/collections/{collection.pk}/"
    assert client.delete(url).status_code == 409
    pipeline.delete()
    with on_commit():
        assert client.delete(url).status_code == 204
    assert not location_of(collection).folder.exists()
    assert client.get(url).status_code == 404


def test_another_workspace_sees_nothing_and_viewers_change_nothing(
    client_of: Callable[[User], APIClient], collection: Connector, workspace: Workspace
) -> None:
    append(collection, 5)
    other = factories.make_workspace()
    stranger = client_of(factories.admin_of(other))
    assert stranger.get("/api/v1/collections/").json()["results"] == []
    for path in ("", "documents/"):
        assert stranger.get(f"/api/v1/collections/{collection.pk}/{path}").status_code == 404
    viewer = client_of(factories.add_member(workspace, Role.VIEWER))
    assert viewer.get(f"/api/v1/collections/{collection.pk}/documents/").status_code == 200
    assert viewer.post(f"/api/v1/collections/{collection.pk}/reset/").status_code == 403
    assert viewer.delete(f"/api/v1/collections/{collection.pk}/").status_code == 403


def test_a_table_that_cannot_be_read_is_said(client: APIClient, collection: Connector) -> None:
    append(collection, 5)
    log = location_of(collection).folder / "_delta_log"
    for file in log.iterdir():
        file.write_text("{")
    [listed] = client.get("/api/v1/collections/").json()["results"]
    assert listed["unavailable"]
    answer = client.get(f"/api/v1/collections/{collection.pk}/documents/")
    assert answer.status_code == 503
    assert answer.json()["detail"]


def test_maintenance_merges_keeps_and_removes_what_has_no_connector(collection: Connector) -> None:
    for number in range(10):
        append(collection, 5, first=number * 5)
    gone = factories.make_connector(collection.workspace, "collection")
    append(gone, 5)
    place = location_of(gone).folder
    gone.delete()
    services.collections_maintain()
    services.collections_vacuum()
    assert not place.exists()
    snapshot = Table(location_of(collection)).snapshot()
    assert (len(snapshot.segments[0]), snapshot.ends) == (1, (50, 0))


def test_files_that_are_missing_are_no_empty_collection(client: APIClient, collection: Connector) -> None:
    append(collection, 5)
    services.collections_maintain()
    folder = location_of(collection).folder
    folder.rename(folder.with_name("unmounted"))
    selectors._readers._open.clear()  # as after a restart
    [listed] = client.get("/api/v1/collections/").json()["results"]
    assert "HEADRACE_COLLECTIONS_URL" in listed["unavailable"]
