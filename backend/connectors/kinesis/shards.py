"""The shards of a stream, read beside each other; those that were split or merged before those that they became."""

import asyncio
import heapq
import time
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from backend.connectors.kinesis.stream import SEND_SECONDS, Stream
from backend.connectors.parts.batch_limit import FIRST_RECORDS, next_limit
from backend.domain.capabilities import DeliveryError

_MOST_REQUESTS = 4
"""At the same time, which bounds the records in memory."""
_PAUSE_SECONDS = 0.2
"""Between two requests for records of a shard, which permits five in a second."""
_EMPTY_SECONDS = 1.0
"""The same after one that found nothing: other readers share those requests."""
_LATER = {"kinesis_provisionedthroughputexceededexception", "kinesis_limitexceededexception"}
_EXPIRED = "kinesis_expirediteratorexception"

Positions = dict[str, str | None]
"""The sequence number of the last record read of each shard, and None for those that were read to their end."""


class Answer(NamedTuple):
    """Records of one shard, and the positions after them."""

    shard: str
    records: Sequence[Any]
    positions: Positions


class _Shard:
    """One that is being read."""

    def __init__(self, stream: Stream, name: str, sequence: str, since: int) -> None:
        """Reading begins after the sequence number or, without one, with records put at ``since`` or later."""
        self.name = name
        self.sequence = sequence
        self.has_ended = False
        self._stream = stream
        self._since = since
        self._iterator = ""
        self._limit = FIRST_RECORDS

    async def read(self) -> list[Any]:
        """The next records; none if there are none, or not now. Raises DeliveryError."""
        try:
            iterator = self._iterator or await self._first_iterator()
            answer = await self._stream.ask(
                "get_records", seconds=SEND_SECONDS, ShardIterator=iterator, Limit=self._limit
            )
        except DeliveryError as error:
            if error.reason == _EXPIRED:
                self._iterator = ""
            elif error.reason not in _LATER:
                raise
            return []
        self._iterator = answer.get("NextShardIterator") or ""
        self.has_ended = not self._iterator
        records: list[Any] = answer["Records"]
        if records:
            self.sequence = records[-1]["SequenceNumber"]
            self._limit = next_limit(self._limit, [len(record["Data"]) for record in records])
        return records

    async def _first_iterator(self) -> str:
        start: dict[str, Any] = {"ShardIteratorType": "TRIM_HORIZON"}
        if self.sequence:
            start = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": self.sequence}
        elif self._since:
            start = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": datetime.fromtimestamp(self._since, UTC)}
        answer = await self._stream.call("get_shard_iterator", ShardId=self.name, **start)
        return str(answer["ShardIterator"])


class Shards:
    """Those of one stream."""

    def __init__(self, stream: Stream, since: int, positions: Positions) -> None:
        self._stream = stream
        self._since = since
        self._positions = positions
        self._known: set[str] = set()
        """Those that are, or were, read by this object."""

    async def read(self) -> AsyncGenerator[Answer, None]:
        """Records of all shards, without end. Raises DeliveryError."""
        due = [(0.0, shard.name, shard) for shard in await self._new()]
        running: dict[asyncio.Task[list[Any]], _Shard] = {}
        try:
            while True:
                while due and len(running) < _MOST_REQUESTS and due[0][0] <= time.monotonic():
                    shard = heapq.heappop(due)[2]
                    running[asyncio.create_task(shard.read())] = shard
                wait = max(0.0, due[0][0] - time.monotonic()) if due and len(running) < _MOST_REQUESTS else None
                if not running:
                    await asyncio.sleep(_EMPTY_SECONDS if wait is None else wait)
                    continue
                done, _ = await asyncio.wait(running, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    shard, records = running.pop(task), task.result()
                    if records or shard.has_ended:
                        yield self._answer(shard, records)
                    if shard.has_ended:
                        for new in await self._new():
                            heapq.heappush(due, (0.0, new.name, new))
                    else:
                        pause = _PAUSE_SECONDS if records else _EMPTY_SECONDS
                        heapq.heappush(due, (time.monotonic() + pause, shard.name, shard))
        finally:
            for task in running:
                task.cancel()

    def _answer(self, shard: _Shard, records: list[Any]) -> Answer:
        self._positions = {**self._positions, shard.name: None if shard.has_ended else shard.sequence}
        return Answer(shard.name, records, self._positions)

    async def _new(self) -> list[_Shard]:
        """Those that can be read from now on. Forgets those that the stream does not keep any more."""
        parents = await self._listed()
        self._positions = {name: position for name, position in self._positions.items() if name in parents}
        ended = {name for name, sequence in self._positions.items() if sequence is None}
        new = [name for name in parents if name not in self._known | ended and parents[name] & parents.keys() <= ended]
        self._known |= set(new)
        return [_Shard(self._stream, name, self._positions.get(name) or "", self._since) for name in new]

    async def _listed(self) -> dict[str, set[str]]:
        """The parents of each shard."""
        parents: dict[str, set[str]] = {}
        page = await self._stream.call("list_shards")
        while True:
            for shard in page["Shards"]:
                named = {shard.get("ParentShardId"), shard.get("AdjacentParentShardId")}
                parents[shard["ShardId"]] = {name for name in named if name}
            if not page.get("NextToken"):
                return parents
            page = await self._stream.ask("list_shards", NextToken=page["NextToken"])
