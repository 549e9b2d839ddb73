import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Literal

from pydantic import Field
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from backend.connectors.parts.batch_limit import FIRST_RECORDS, next_limit
from backend.connectors.parts.source_headers import headers_of
from backend.connectors.redis_stream.client import ANSWER_SECONDS, as_delivery_errors, client_of
from backend.connectors.redis_stream.connection import RedisStreamConnection
from backend.domain import json
from backend.domain.capabilities import Batch, InputRecord, Options, ReadStream
from backend.domain.message import CONTENT_TYPE
from backend.domain.model import ADVANCED

_WAIT_SECONDS = 2.0
"""How long the server waits for new entries; less than it may take to answer."""
_CLAIM_EVERY_SECONDS = 30.0

Fields = dict[bytes, bytes]
Entry = tuple[bytes, Fields]


class RedisReadOptions(Options):
    """Entries of one stream."""

    stream: str = Field(min_length=1, description="Key of the stream.", examples=["orders"])
    group: str = Field(
        min_length=1,
        description="Consumer group under which Redis keeps what was read; it is made when it is missing.",
        examples=["headrace"],
    )
    begin: Literal["earliest", "latest"] = Field(
        "earliest",
        description="Where a new group begins: with the oldest entry, or with those added from now on.",
    )
    field: str | None = Field(
        None,
        min_length=1,
        description="Field whose value is the message's body. Without it, and for entries that lack it, the message is "
        "an object of all fields.",
    )
    consumer: str = Field(
        "headrace",
        min_length=1,
        description="Name of the reader in the group; pipelines that share a group need different ones.",
        json_schema_extra=ADVANCED,
    )
    claim_seconds: int = Field(
        300,
        ge=1,
        description="Entries that another reader of the group took and did not acknowledge for this long are taken "
        "over, in seconds.",
        json_schema_extra=ADVANCED,
    )


class RedisReadStream(ReadStream[RedisStreamConnection, RedisReadOptions]):
    """Reads as a consumer of a group (Redis 6.2 or newer, or Valkey).

    At least once. Entries stay pending in Redis until Headrace has stored them. After a crash the pending ones come
    first, as messages with the same IDs. An entry that was removed from the stream while it was pending is lost, so
    that MAXLEN has to leave room. Where one field is the body, the others travel with the message: outputs write them,
    and templates have them as `{{$message.headers.NAME}}`, the stream as `{{$message.source}}`. An entry with more than
    64 KiB of them becomes a dead letter."""

    options_model = RedisReadOptions
    _redis: Redis | None = None

    async def open(self) -> None:
        self._redis = client_of(self.connection)
        options = self.options
        start = "0" if options.begin == "earliest" else "$"
        with as_delivery_errors():
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self._redis.xgroup_create(options.stream, options.group, id=start, mkstream=True)
            except ResponseError as error:
                if not str(error).startswith("BUSYGROUP"):  # it exists
                    raise

    async def stream(self) -> AsyncIterator[Batch]:
        with as_delivery_errors():
            async for entries in self._entries():
                # An entry that was removed from the stream while it was pending has no fields.
                records = [self._record(name, fields) for name, fields in entries if fields]
                yield Batch(records, [name.decode() for name, _ in entries])

    async def _entries(self) -> AsyncIterator[list[Entry]]:
        """Those that this reader had taken before it was restarted, then new ones and those that others left."""
        limit, after = FIRST_RECORDS, "0"
        claim_at = 0.0
        while True:
            if after == ">" and time.monotonic() > claim_at:
                entries = await self._claimed(limit)
                if len(entries) < limit:
                    claim_at = time.monotonic() + _CLAIM_EVERY_SECONDS
            else:
                entries = await self._taken(after, limit)
                if after != ">":
                    after = entries[-1][0].decode() if entries else ">"
            if entries:
                limit = next_limit(limit, [sum(map(len, fields.values())) for _, fields in entries])
                yield entries

    async def acknowledge(self, position: Any) -> None:
        assert self._redis is not None
        with as_delivery_errors():
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._redis.xack(self.options.stream, self.options.group, *position)

    async def lag(self) -> int | None:
        """Redis knows it from version 7 on, as long as no entry was removed from the middle of the stream."""
        assert self._redis is not None
        with as_delivery_errors():
            groups: Any = await self._redis.xinfo_groups(self.options.stream)
        lag = next((group.get("lag") for group in groups if group["name"] == self.options.group.encode()), None)
        return None if lag is None else int(lag)

    async def close(self) -> None:
        if self._redis is not None:
            await self._redis.aclose(close_connection_pool=True)

    async def _taken(self, after: str, limit: int) -> list[Entry]:
        options = self.options
        assert self._redis is not None
        async with asyncio.timeout(ANSWER_SECONDS):
            answer: Any = await self._redis.xreadgroup(
                options.group,
                options.consumer,
                {options.stream: after},
                count=limit,
                block=int(_WAIT_SECONDS * 1000) if after == ">" else None,
            )
        return answer[0][1] if answer else []

    async def _claimed(self, limit: int) -> list[Entry]:
        options = self.options
        assert self._redis is not None
        async with asyncio.timeout(ANSWER_SECONDS):
            answer: Any = await self._redis.xautoclaim(
                options.stream, options.group, options.consumer, options.claim_seconds * 1000, count=limit
            )
        entries: list[Entry] = answer[1]
        return entries

    def _record(self, name: bytes, fields: Fields) -> InputRecord:
        options = self.options
        identity = f"{options.stream}/{name.decode()}"
        if options.field and (body := fields.get(options.field.encode())) is not None:
            content_type = fields.get(CONTENT_TYPE.encode(), b"application/json")
            others = [(_text(name), value) for name, value in fields.items() if name != options.field.encode()]
            return InputRecord(
                body,
                content_type=content_type.decode(errors="replace"),
                identity=identity,
                source=options.stream,
                headers=headers_of(others),
            )
        document = json.dumps({_text(name): _text(value) for name, value in fields.items()})
        return InputRecord(document, identity=identity, source=options.stream)


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")
