"""A process with many HTTP outputs and few file handles: ``python -m … PORT OUTPUTS FILES``.

Each output has a receiver of its own: 127.0.0.0/8 has an address for each. Prints the result as JSON.
"""

import asyncio
import json
import os
import resource
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from backend.connectors.http.connection import HttpConnection
from backend.connectors.http.deliver import HttpDeliver
from backend.connectors.http.options import HttpOptions
from backend.domain.capabilities import DeliveryError
from backend.domain.message import Message, new_message_id, utc_now


def most_memory() -> int:
    """The most bytes of this process; what getrusage() says includes those of the process that started it."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) * 1024


async def run(port: int, count: int, files: int) -> dict[str, Any]:
    before = most_memory()
    outputs = [
        HttpDeliver(
            HttpConnection.model_validate({"url": f"http://127.0.{n // 250}.{n % 250 + 1}:{port}/"}),
            # Each tenth has settings of its own.
            HttpOptions.model_validate({"connect_timeout_seconds": 30 + n % 10, "headers": {"X-Output": str(n)}}),
        )
        for n in range(count)
    ]
    await asyncio.gather(*(output.open() for output in outputs))

    # As many as may be open: libcurl counts waiting for a free connection as time for connecting, and how long that is
    # depends on the machine.
    connections = asyncio.Semaphore(files // 2)

    async def send(output: HttpDeliver) -> str:
        message = Message(new_message_id(), "p", 1, b"", b"{}", "application/json", utc_now(), ())
        async with connections:
            try:
                return (await output.deliver(message)).status
            except DeliveryError as error:
                return str(error)

    results = Counter([status for _ in range(2) for status in await asyncio.gather(*map(send, outputs))])
    files = len(os.listdir("/proc/self/fd"))
    await asyncio.gather(*(output.close() for output in outputs))
    return {
        "results": results,
        "files": files,
        "after": len(os.listdir("/proc/self/fd")),
        "memory": most_memory() - before,
    }


if __name__ == "__main__":
    port, count, files = map(int, sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    print(json.dumps(asyncio.run(run(port, count, files))))
