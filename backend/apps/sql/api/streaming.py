"""Streams lines of JSON that a blocking iterator gives, over ASGI."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from django.db import close_old_connections
from django.http import StreamingHttpResponse

from backend.domain import json

CONTENT_TYPE = "application/x-ndjson"
_threads = ThreadPoolExecutor(64, thread_name_prefix="sql-stream")
"""One for each answer that is being streamed; those that come later wait."""


def streamed(lines: Iterator[Any]) -> StreamingHttpResponse:
    """The lines, which are dataclasses, as they come. When the caller disconnects, the iterator is closed."""
    response = StreamingHttpResponse(_encoded(lines), content_type=CONTENT_TYPE)
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    response["Content-Encoding"] = "identity"  # what compresses would keep lines back until there are many
    return response


async def _encoded(lines: Iterator[Any]) -> AsyncIterator[bytes]:
    one_at_a_time = threading.Lock()

    def following() -> Any:
        with one_at_a_time:
            try:
                return next(lines, None)
            finally:
                close_old_connections()

    def end() -> None:
        with one_at_a_time:
            try:
                lines.close()  # type: ignore[attr-defined]
            finally:
                close_old_connections()

    loop = asyncio.get_running_loop()
    try:
        while (line := await loop.run_in_executor(_threads, following)) is not None:
            yield json.dumps(asdict(line)) + b"\n"
    finally:
        _threads.submit(end)
