"""One change stream as processes that can be killed: ``python -m tests.integration.change_streams.stream_process``.

Each line of its input, a job as JSON, runs the stream in a fork, which has everything imported: until the step is
done after which it is to be killed, or until all documents are sent. Each line of its output is the exit status of one.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from typing import Any

from backend.change_streams.changes import Changes, Deltas, LastByKey
from backend.change_streams.stream import ChangeStream
from backend.collections.location import Location
from backend.collections.table import Table
from backend.connectors.materialize_cdc.connection import MaterializeConnection
from backend.connectors.materialize_cdc.senders import open_sender
from backend.domain.cdc import Format
from tests.waiting import LIMIT_SECONDS

STEPS = ("started", "planned", "updates_sent", "committed", "progress_sent")


class StreamProcess:
    """One process after the other."""

    def __init__(self, uri: str, connection: dict[str, Any]) -> None:
        self._job = {"uri": uri, "connection": connection}
        command = [sys.executable, "-m", "tests.integration.change_streams.stream_process"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def run(self, step: str = "") -> int:
        """The exit status of one that is killed after the step, or that sends everything."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(self._job | {"step": step}) + "\n")
        return int(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(LIMIT_SECONDS)
        self._process.stdout.close()


async def _run(uri: str, connection: dict[str, Any], step: str) -> None:
    settings = MaterializeConnection.model_validate(connection)
    table = Table(Location.of(uri))
    ends = table.snapshot().ends
    form = Format(settings.avro_schema)
    changes: Changes = LastByKey(form) if settings.reduce == "last_by_key" else Deltas(form)
    stream = ChangeStream(table, changes)
    sent = asyncio.Event()

    def at(done: str) -> None:
        if done == step:
            os.kill(os.getpid(), signal.SIGKILL)
        if done in ("started", "progress_sent") and stream.position.begin == ends and not step:
            sent.set()

    sender = await open_sender(settings)
    running = asyncio.create_task(stream.run(sender, at))
    waiting = asyncio.create_task(sent.wait())
    await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    running.cancel()
    await sender.close()


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                asyncio.run(_run(**job))
                status = 0
            finally:
                sys.stderr.flush()
                os._exit(status)
        _, waited = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(waited), flush=True)


if __name__ == "__main__":
    main()
