"""Runs one change stream."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeVar
from uuid import UUID

from django.db import connection

from backend.apps.collections.selectors import collection_store, collections_of, connection_of
from backend.apps.connectors.models import Connector
from backend.apps.connectors.secret_store import runtime_connector
from backend.change_streams.changes import Changes, Deltas, LastByKey
from backend.change_streams.feed import Feed
from backend.change_streams.stream import ChangeStream
from backend.collections.errors import CollectionError, CollectionMissingError
from backend.collections.location import Location
from backend.collections.reader import CollectionReader
from backend.collections.table import Table
from backend.connectors.materialize_cdc.connection import MaterializeConnection
from backend.connectors.materialize_cdc.senders import open_sender
from backend.domain.capabilities import DeliveryError
from backend.domain.cdc import Format
from backend.domain.model import UnreadableConfigError

log = logging.getLogger(__name__)

_RETRY_SECONDS = (1.0, 30.0)
_SENDING = "sending"

T = TypeVar("T")


class State(NamedTuple):
    """``timestamp`` of the last transaction, -1 before the first one, which had ``num_records`` updates. ``error`` says
    what cannot be done at the moment, each in a line."""

    timestamp: int
    num_records: int
    error: str


@dataclass(frozen=True)
class _Source:
    """An existing collection that feeds the stream."""

    name: str
    collection: str
    location: Location


@dataclass(frozen=True)
class _Stream:
    """A stream as it is configured."""

    workspace: str
    connector: str
    settings: MaterializeConnection
    sources: tuple[_Source, ...]

    def log(self) -> Table:
        """Its log, opened for one thread. Raises CollectionError."""
        return collection_store().table(self.workspace, self.connector, partitions=self.settings.partitions)

    def changes(self) -> Changes:
        form = Format(self.settings.avro_schema)
        return LastByKey(form) if self.settings.reduce == "last_by_key" else Deltas(form)


class StreamRunner(threading.Thread):
    """Sends one stream, and begins again when that fails.

    It has a thread with an event loop of its own: whatever it waits for, a receiver, a disk or Vault, no other stream
    waits for.
    """

    def __init__(self, connector_id: UUID, version: datetime) -> None:
        """``version`` is when the connector was last changed."""
        super().__init__(name=f"change-stream-{connector_id}", daemon=True)
        self.version = version
        self._id = connector_id
        self._errors: dict[str, str] = {}
        """What cannot be done at the moment: to send, or to take a collection over."""
        self._stream: ChangeStream | None = None
        self._ended = False
        self._cancel: Callable[[], object] | None = None
        self._lock = threading.Lock()

    def run(self) -> None:
        asyncio.run(self._until_cancelled())

    def end(self) -> None:
        """Makes the thread end soon. Called by other threads, any number of times."""
        with self._lock:
            self._ended = True
            if self._cancel is not None:
                self._cancel()
                self._cancel = None

    def state(self) -> State:
        """Called by other threads."""
        stream = self._stream
        position = stream.position if stream is not None else None
        error = "\n".join(list(self._errors.values()))
        return State(position.timestamp, position.num_records, error) if position is not None else State(-1, 0, error)

    async def _until_cancelled(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        with self._lock:
            if self._ended:
                return
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            await self._work()
        except asyncio.CancelledError:
            return
        finally:
            with self._lock:
                self._cancel = None

    async def _retried(self, part: str, work: Callable[[], Awaitable[T]]) -> T:
        """What it returns, once it does. A part that worked until it failed is soon tried again."""
        wait, longest = _RETRY_SECONDS
        while True:
            error = ""
            try:
                return await work()
            except CollectionMissingError:
                log.debug("Nothing was written to the %s yet.", part)
            except (DeliveryError, CollectionError, ValueError) as failure:
                error = str(failure)
            except Exception as failure:
                log.exception("The change stream %s failed unexpectedly.", self._id)
                error = f"It failed unexpectedly ({type(failure).__name__}); the server's log has the details."
            if part not in self._errors:
                wait = _RETRY_SECONDS[0]
            if error:
                self._errors[part] = error
                log.warning("The change stream %s, %s: %s", self._id, part, error)
            await asyncio.sleep(wait)
            wait = min(longest, wait * 2)

    async def _work(self) -> None:
        """Each part is tried again by itself: while nothing can be sent, collections are still taken over."""
        stream = await self._retried(_SENDING, self._loaded)
        parts = [self._retried(_SENDING, self._send), *(self._fed(stream, source) for source in stream.sources)]
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(part)

    async def _loaded(self) -> _Stream:
        """Raises ValueError."""
        return await asyncio.to_thread(_loaded, self._id)

    async def _fed(self, stream: _Stream, source: _Source) -> None:
        part = f"collection {source.name}"

        def opened() -> Feed:
            check, deltas = stream.changes().check, stream.settings.reduce == "deltas"
            return Feed(source.collection, CollectionReader(source.location), stream.log(), check, deltas=deltas)

        async def feed() -> None:
            await (await asyncio.to_thread(opened)).run(lambda: self._works(part))

        await self._retried(part, feed)

    async def _send(self) -> None:
        """Raises DeliveryError, CollectionError, ValueError."""
        stream = await self._loaded()  # a secret may have changed in the place that the connector refers to
        self._stream = await asyncio.to_thread(lambda: ChangeStream(stream.log(), stream.changes()))
        sender = await open_sender(stream.settings)
        try:
            await self._stream.run(sender, lambda step: self._works(_SENDING))
        finally:
            await sender.close()

    def _works(self, part: str) -> None:
        self._errors.pop(part, None)


def _loaded(connector_id: UUID) -> _Stream:
    """Raises ValueError."""
    try:
        connector = Connector.objects.select_related("workspace").filter(pk=connector_id).first()
        if connector is None:
            raise ValueError("The change stream was deleted.")
        runtime = runtime_connector(connector)
        if runtime.error:
            raise ValueError(runtime.error)
        settings = MaterializeConnection.model_validate(runtime.connection)
        sources = tuple(_source(connector, name, settings) for name in settings.collections)
        return _Stream(str(connector.workspace_id), str(connector.pk), settings, sources)
    finally:
        connection.close()


def _source(stream: Connector, name: str, settings: MaterializeConnection) -> _Source:
    """Raises ValueError."""
    collection = collections_of(stream.workspace).filter(name=name).first()
    if collection is None:
        raise ValueError(f"There is no collection {name!r} any more: name another one, or take it out.")
    try:
        reduced = connection_of(collection).reduce
    except UnreadableConfigError as error:
        raise ValueError(f"The collection {name!r} cannot be read: {error}") from None
    if settings.reduce == "deltas" and reduced != "none":
        raise ValueError(
            f"The collection {name!r} keeps only the last document of each key, so that differences would be missing: "
            "choose last_by_key, or a collection that keeps all documents."
        )
    location = collection_store().location(str(collection.workspace_id), str(collection.pk))
    return _Source(name, str(collection.pk), location)
