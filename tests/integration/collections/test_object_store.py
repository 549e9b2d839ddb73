"""Collections in an object store."""

import uuid

import pytest
from aiobotocore.session import get_session

from backend.collections.errors import CollectionMissingError, FencedError
from backend.collections.maintenance import Retention, merge, vacuum
from backend.collections.reader import CollectionReader
from backend.collections.store import CollectionStore
from backend.collections.table import Table
from backend.collections.writer import CollectionWriter
from tests.infra import Server
from tests.seaweedfs import ACCESS_KEY, ENDPOINT, SECRET_KEY, seaweedfs  # noqa: F401
from tests.unit.collections.test_log import documents


@pytest.fixture
async def store(seaweedfs: Server, monkeypatch: pytest.MonkeyPatch) -> CollectionStore:  # noqa: F811
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    bucket = f"bucket-{uuid.uuid4().hex}"
    login = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
    async with get_session().create_client("s3", region_name="eu-west-1", endpoint_url=ENDPOINT, **login) as client:
        await client.create_bucket(Bucket=bucket)
    address = ENDPOINT.removeprefix("http://")
    return CollectionStore(f"s3://{bucket}/collections?region=eu-west-1&endpoint_override={address}&scheme=http")


async def test_a_collection_lives_in_an_object_store(store: CollectionStore) -> None:
    table = store.table("workspace", "orders", partitions=2)
    writer = CollectionWriter(table, "topic/0")
    for first in range(0, 100, 10):
        writer.append(documents(range(first, first + 10)), first + 10)
    location = store.location("workspace", "orders")
    former = CollectionWriter(Table(location), "topic/0")
    former.position()
    writer.append(documents(range(100, 110)), 110)
    with pytest.raises(FencedError):  # what it knows of the table is out of date
        former._commit(documents(range(100, 110)), 110)
    assert former.append(documents(range(100, 110)), 110) == 0
    assert merge(Table(location), Retention()) == 11
    reader = CollectionReader(location)
    assert [int(document.value) for document in reader.read(0, 0, 100_000)] == list(range(110))
    assert vacuum(Table(location)) == 0
    assert list(store.all()) == [("workspace", "orders")]
    store.delete("workspace", "orders")
    assert store.is_deleted("workspace", "orders")
    with pytest.raises(CollectionMissingError):
        store.table("workspace", "orders", partitions=2)
