"""The reference receiver as a service: PUT takes a batch of messages, GET shows the multiset."""

import io
import logging
import os
from pathlib import Path
from typing import Any

from backend.change_streams.receiver import ContradictionError, Receiver
from backend.domain import formats, json
from backend.domain.avro.files import read_file
from backend.kafka.server.http import answer

log = logging.getLogger(__name__)

_JSON = "application/json"


class ReceiverApplication:
    """An ASGI application. A batch is stored in the journal before it is acknowledged, and read from there after a
    restart."""

    def __init__(self, journal: Path | None = None) -> None:
        """Raises OSError, and ValueError for a journal that is not one."""
        self.receiver = Receiver()
        self._journal = journal
        if journal is not None and journal.exists():
            whole, _, _ = journal.read_bytes().rpartition(b"\n")  # a batch that was cut off was not acknowledged
            for line in whole.splitlines():
                self._apply(json.loads(line))
            journal.write_bytes(whole + b"\n" if whole else b"")

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        match scope["method"]:
            case "PUT":
                kind = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
                status, shown = self._put(kind, await _body(receive))
            case "GET":
                status, shown = 200, self._shown()
            case "OPTIONS":
                status, shown = 200, {"allow": ["GET", "PUT"]}
            case _:
                status, shown = 405, {"error": "PUT takes messages, and GET shows the records."}
        await answer(send, status, _JSON, json.dumps(shown))

    def _put(self, kind: str, body: bytes) -> tuple[int, dict[str, Any]]:
        try:
            messages = _from_avro(body) if kind == "application/avro" else json.loads(body)
            self._apply(messages)
        except (ContradictionError, ValueError, KeyError, TypeError, IndexError) as error:
            log.warning("A batch was refused: %s", error)
            return 422, {"error": str(error)}
        if self._journal is not None:
            with self._journal.open("ab") as file:
                file.write(json.dumps(messages) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        return 200, {"complete": self.receiver.complete}

    def _apply(self, messages: list[Any]) -> None:
        for message in messages:
            self.receiver.message(message)

    def _shown(self) -> dict[str, Any]:
        records = [{"record": json.loads(key), "count": count} for key, count in sorted(self.receiver.records.items())]
        return {"complete": self.receiver.complete, "records": records}


def _from_avro(body: bytes) -> list[Any]:
    """Raises ValueError."""
    return [
        {"progress" if isinstance(message, dict) else "updates": formats.json_values(message)}
        for message in read_file(io.BytesIO(body))
    ]


async def _body(receive: Any) -> bytes:
    parts = []
    more = True
    while more:
        event = await receive()
        parts.append(event.get("body", b""))
        more = event.get("more_body", False)
    return b"".join(parts)
