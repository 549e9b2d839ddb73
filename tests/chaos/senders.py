"""Sends numbered messages for every tenant. What is not accepted is sent again until it is."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import aiohttp

from tests.chaos.sources import Document
from tests.chaos.tenants import KEYS, Tenant
from tests.installation import Installation

_RETRY_SECONDS = 0.3
_REQUEST_SECONDS = 20.0


@dataclass
class Sent:
    """What one tenant sent."""

    ids: dict[str, float] = field(default_factory=dict)
    """When each accepted message was first sent, by its id; seconds of the monotonic clock."""
    unanswered: int = 0
    """Messages of requests without an answer, which may have been accepted: they are posted again under new ids."""
    refused: int = 0
    """Messages of requests that were answered with another status than 202."""


class Senders:
    """Runs in a thread of its own. ``requests`` counts those of all tenants, answered or not: the schedule of the
    faults follows it, so that it needs no clock."""

    def __init__(self, installation: Installation, tenants: list[Tenant]) -> None:
        self._url = f"{installation.endpoint('ingest')}/v1/pipelines/%s/messages"
        self._tenants = tenants
        self.sent = {tenant.name: Sent() for tenant in tenants}
        self.requests = 0
        self._stop = False
        self.misbehaving = threading.Event()
        """Set while the tenants that misbehave send, too."""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    @contextmanager
    def running(self) -> Iterator["Senders"]:
        self._thread.start()
        try:
            yield self
        finally:
            self.stop()

    def stop(self) -> None:
        """Returns once every tenant's last request was accepted."""
        self._stop = True
        self._thread.join()

    def wait_for(self, requests: int) -> None:
        """Returns after so many further requests of all tenants."""
        last = self.requests + requests
        while self.requests < last:
            assert self._thread.is_alive()
            time.sleep(0.05)

    async def _run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=_REQUEST_SECONDS)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            await asyncio.gather(*(self._send(session, tenant) for tenant in self._tenants))

    async def _send(self, session: aiohttp.ClientSession, tenant: Tenant) -> None:
        number = 0
        pad = "x" * tenant.padding
        while not self._stop:
            if tenant.misbehaves and not self.misbehaving.is_set():
                await asyncio.sleep(tenant.pause)
                continue
            numbers = range(number, number + tenant.messages)
            documents = [{"n": n, "key": str(n % KEYS), "note": "chaos", "pad": pad} for n in numbers]
            send = self._posted if tenant.source is None else self._written
            while not await send(session, tenant, documents):
                await asyncio.sleep(_RETRY_SECONDS)
            number += tenant.messages
            await asyncio.sleep(tenant.pause)

    async def _written(self, _: aiohttp.ClientSession, tenant: Tenant, documents: list[Document]) -> bool:
        assert tenant.source is not None
        began = time.monotonic()
        self.requests += 1
        documents = [{**document, "id": str(document["n"])} for document in documents]
        if not await asyncio.to_thread(tenant.source.write, documents):
            return False
        self.sent[tenant.name].ids.update((document["id"], began) for document in documents)
        return True

    async def _posted(self, session: aiohttp.ClientSession, tenant: Tenant, documents: list[Document]) -> bool:
        sent = self.sent[tenant.name]
        headers = {"Authorization": f"Bearer {tenant.key}", "Content-Type": "application/x-ndjson"}
        body = "\n".join(map(json.dumps, documents))
        began = time.monotonic()
        self.requests += 1
        try:
            async with session.post(self._url % tenant.entry, data=body, headers=headers) as answer:
                if answer.status == 202:
                    sent.ids.update(dict.fromkeys((await answer.json())["message_ids"], began))
                    return True
                # A refusal for Kafka's sake says nothing of whether Kafka has the messages.
                sent.refused += len(documents)
                return False
        except (TimeoutError, aiohttp.ClientError):
            sent.unanswered += len(documents)
            return False
