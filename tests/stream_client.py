"""A client of a service that tests look at from outside."""

import asyncio
import contextlib

from tests.waiting import LIMIT_SECONDS


class StreamClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def is_closed(self) -> bool:
        """Waits until the service closes the connection; nothing may come before."""
        async with asyncio.timeout(LIMIT_SECONDS):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read() == b""
        return True
