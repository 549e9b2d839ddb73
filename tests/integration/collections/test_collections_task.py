"""The task of collections as a process: from messages handed over to documents, whatever dies on the way."""

import asyncio
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from backend.collections.documents import Document
from backend.collections.errors import CollectionError
from backend.collections.reader import CollectionReader
from backend.collections.store import CollectionStore
from backend.connectors.collection import CollectionCollect, CollectionConnection
from backend.connectors.parts.documents import CollectionOptions
from backend.domain import routing
from backend.domain.collected import collected_record
from backend.domain.message import Message, new_message_id, utc_now
from backend.settings import platform_settings
from tests.infra import KAFKA
from tests.integration.task_process import TaskProcess
from tests.waiting import LIMIT_SECONDS, wait_until_async

pytestmark = pytest.mark.usefixtures("pipeline_topics")

STEPS = ("read", "planned", "files_written", "committed", "appended", "offsets_stored")
ROUNDS = 4
WORKSPACE = str(uuid.uuid4())


@pytest.fixture(scope="module")
def task() -> Iterator[TaskProcess]:
    started = TaskProcess("collections")
    yield started
    started.close()


class Collection:
    """A collection, and what an output with it hands over."""

    def __init__(self, partitions: int = 3) -> None:
        self.id = str(uuid.uuid4())
        self.store = CollectionStore(platform_settings().collections_url)
        self.sent: list[str] = []
        self.resize(partitions)

    def resize(self, partitions: int) -> None:
        self.partitions = partitions
        connection = CollectionConnection.model_validate({"partitions": partitions})
        options = CollectionOptions.model_validate({"key": "{{id}}", "delete_when": "gone"})
        self._output = CollectionCollect(connection, options)

    def hand_over(self, bodies: list[str]) -> None:
        """As the delivery engine does."""
        producer = Producer({"bootstrap.servers": KAFKA})
        for body in bodies:
            message = Message(
                id=new_message_id(),
                pipeline_id=str(uuid.uuid4()),
                version=1,
                key=b"",
                body=body.encode(),
                content_type="application/json",
                received_at=utc_now(),
                slip=(),
            )
            document = self._output.document(message)
            record = collected_record(message, document, collection=self.id, workspace_id=WORKSPACE)
            producer.produce(record.topic, record.value, record.key, headers=list(record.headers))
        assert producer.flush(LIMIT_SECONDS) == 0
        self.sent += bodies

    def reader(self) -> CollectionReader:
        return CollectionReader(self.store.location(WORKSPACE, self.id))

    @property
    def folder(self) -> Path:
        folder = self.store.location(WORKSPACE, self.id).folder
        assert folder is not None
        return folder

    def documents(self) -> list[list[Document]]:
        """By partition, whose offsets are checked to be dense."""
        reader, parts = self.reader(), []
        for partition in range(reader.partitions):
            documents: list[Document] = []
            while more := reader.read(partition, len(documents), 1024 * 1024):
                documents += more
            assert [document.offset for document in documents] == list(range(reader.end_offset(partition)))
            parts.append(documents)
        return parts

    def hide(self) -> None:
        """Makes it impossible to write to."""
        log = self.folder / "_delta_log"
        log.rename(log.with_name("hidden"))
        log.touch()  # no table, and no place for one

    def show(self) -> None:
        log = self.folder / "_delta_log"
        log.unlink()
        log.with_name("hidden").rename(log)

    async def complete(self) -> list[list[Document]]:
        """Once everything that was sent is there."""

        async def is_complete() -> bool:
            try:
                reader = await asyncio.to_thread(self.reader)
            except CollectionError:
                return False
            return sum(reader.snapshot.ends) >= len(self.sent)

        await wait_until_async(is_complete)
        documents = await asyncio.to_thread(self.documents)
        assert sorted(document.value.decode() for part in documents for document in part) == sorted(self.sent)
        return documents


def bodies(numbers: range, keys: int = 10) -> list[str]:
    return [f'{{"id": "k{number % keys}", "number": {number}}}' for number in numbers]


async def test_documents_are_appended_once_in_the_order_of_their_keys(task: TaskProcess) -> None:
    collection, other = Collection(), Collection(1)
    async with task.running():
        collection.hand_over(bodies(range(2000)))
        other.hand_over(['{"id": 7}', '{"id": 7, "gone": true}'])
        documents = await collection.complete()
        [others] = await other.complete()
    for part in documents:
        for key in {document.key for document in part}:
            numbers = [int(d.value.split(b":")[-1][:-1]) for d in part if d.key == key]
            assert numbers == sorted(numbers)
    assert len({document.key for part in documents for document in part}) == 10
    assert [(document.key, document.deleted) for document in others] == [(b"7", False), (b"7", True)]
    assert dict(others[0].headers).keys() >= {"message-id", "pipeline", "version", "received-at", "content-type"}


async def test_no_step_at_which_it_is_killed_loses_or_repeats_a_document(task: TaskProcess) -> None:
    collection = Collection()
    for number in range(ROUNDS * len(STEPS)):
        collection.hand_over(bodies(range(number * 50, number * 50 + 50)))
        step = STEPS[number % len(STEPS)]
        assert await task.killed_after(step) == -signal.SIGKILL, f"The step {step} was not reached."
    async with task.running():
        documents = await collection.complete()
    for part in documents:
        times = [document.timestamp for document in part]
        assert times == sorted(times)


async def test_partitions_may_become_more(task: TaskProcess) -> None:
    collection = Collection(1)
    async with task.running():
        collection.hand_over(bodies(range(100)))
        await collection.complete()
        collection.resize(4)
        collection.hand_over(bodies(range(100, 200)))
        documents = await collection.complete()
    assert len(documents) == 4
    assert all(documents)


async def test_documents_of_a_deleted_collection_are_dropped(task: TaskProcess) -> None:
    deleted, other = Collection(1), Collection(1)
    async with task.running():
        deleted.hand_over(bodies(range(10)))
        await deleted.complete()
        deleted.store.delete(WORKSPACE, deleted.id)
        deleted.hand_over(bodies(range(10, 20)))
        other.hand_over(bodies(range(10)))
        await other.complete()
    with pytest.raises(CollectionError):
        deleted.reader()


async def test_a_record_that_is_no_document_holds_nobody_up(task: TaskProcess) -> None:
    producer = Producer({"bootstrap.servers": KAFKA})
    producer.produce(routing.COLLECTION, b"{}", headers=[("collection", b"nonsense")])
    assert producer.flush(LIMIT_SECONDS) == 0
    collection = Collection()
    collection.hand_over(bodies(range(10)))
    async with task.running():
        await collection.complete()


async def test_collections_that_cannot_be_written_hold_up_no_other(task: TaskProcess) -> None:
    broken, other = [Collection(), Collection()], Collection()
    async with task.running():
        for collection in broken:
            collection.hand_over(bodies(range(100)))
            await collection.complete()
            collection.hide()
        for number in range(1, 4):
            for collection in (*broken, other):
                collection.hand_over(bodies(range(number * 100, number * 100 + 100)))
            await other.complete()
        # A task that takes over begins with what is missing.
    async with task.running():
        other.hand_over(bodies(range(400, 500)))
        await other.complete()
        for collection in broken:  # the second one is still late when the first one is not
            collection.show()
            await collection.complete()
            collection.hand_over(bodies(range(400, 500)))
            await collection.complete()
