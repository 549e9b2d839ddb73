"""A Delta Sharing server over local Delta tables, as a process: ``delta_sharing_server.py PORT TOKEN FOLDER``.

It answers in the Parquet format, in pages if the client asks for them, and reads changes from the tables' logs. A table
is a folder SHARE/SCHEMA/TABLE; a file ``no-history`` in it forbids reading by version. Addresses of files are signed
and refuse the bearer token, as those of a storage do.
"""

import hashlib
import hmac
import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from deltalake import DeltaTable


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    port: int
    token: str
    folder: Path

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: dict[str, Any]) -> None:
        address = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        path = [unquote(part) for part in address.path.strip("/").split("/")]
        try:
            if path[0] == "files":
                self._send_file("/".join(path[1:]), query)
            else:
                self._check_token()
                self._send_answer(path[1:], query, body)
        except Refused as refused:
            message = json.dumps({"errorCode": "REFUSED", "message": str(refused)}).encode()
            self._send(refused.status, message, {})

    def _check_token(self) -> None:
        if self.headers["Authorization"] != f"Bearer {self.token}":
            raise Refused(401, f"The token {self.headers['Authorization']} is not valid.")

    def _send_answer(self, path: list[str], query: dict[str, str], body: dict[str, Any]) -> None:
        if path == ["shares"]:
            names = sorted(share.name for share in self.folder.iterdir())
            self._send(200, json.dumps({"items": [{"name": name} for name in names]}).encode(), {})
            return
        _, share, _, schema, _, table, kind = path
        folder = self.folder / share / schema / table
        if not folder.is_dir():
            raise Refused(404, f"Table {table} does not exist.")
        current = DeltaTable(folder).version()
        match kind:
            case "version":
                self._send(200, b"", {"Delta-Table-Version": str(current)})
            case "query":
                version = body.get("version", current)
                if "version" in body and (folder / "no-history").exists():
                    raise Refused(400, "History sharing is not enabled for this table.")
                lines = list(self._snapshot(folder, version))
                self._send_lines(folder, version, lines, body.get("maxFiles"), body.get("pageToken"))
            case "changes":
                first, last = int(query["startingVersion"]), int(query["endingVersion"])
                lines = [line for number in range(first, last + 1) for line in self._changes(folder, number)]
                self._send_lines(folder, first, lines, query.get("maxFiles"), query.get("pageToken"))
            case _:
                raise Refused(404, "There is no such address.")

    def _send_lines(
        self, folder: Path, version: int, lines: list[dict[str, Any]], most: Any, token: str | None
    ) -> None:
        """Pages of at most two files, however many are asked for."""
        start = int(token or 0)
        end = start + min(int(most), 2) if most else len(lines)
        shown = [*self._described(folder, version), *lines[start:end]]
        if most:
            shown.append({"endStreamAction": {"nextPageToken": str(end)} if end < len(lines) else {}})
        text = "".join(json.dumps(line) + "\n" for line in shown)
        self._send(200, text.encode(), {"Delta-Table-Version": str(version)})

    def _described(self, folder: Path, version: int) -> Iterator[dict[str, Any]]:
        table = DeltaTable(folder, version=version)
        metadata = table.metadata()
        yield {"protocol": {"minReaderVersion": 1}}
        yield {
            "metaData": {
                "id": str(metadata.id),
                "format": {"provider": "parquet"},
                "schemaString": table.schema().to_json(),
                "partitionColumns": metadata.partition_columns,
            }
        }

    def _snapshot(self, folder: Path, version: int) -> Iterator[dict[str, Any]]:
        added: dict[str, dict[str, Any]] = {}
        for number in range(version + 1):
            for action in _log(folder, number):
                if "remove" in action:
                    added.pop(action["remove"]["path"], None)
                if "add" in action:
                    added[action["add"]["path"]] = action["add"]
        for action in added.values():
            yield {"file": self._file(folder, action)}

    def _changes(self, folder: Path, number: int) -> Iterator[dict[str, Any]]:
        actions = _log(folder, number)
        timestamp = next(action["commitInfo"]["timestamp"] for action in actions if "commitInfo" in action)
        if DeltaTable(folder).metadata().configuration.get("delta.enableChangeDataFeed") != "true":
            raise Refused(400, "The change data feed of this table is not enabled.")
        kinds = {"cdc": "cdf"} if any("cdc" in action for action in actions) else {"add": "add", "remove": "remove"}
        for action in actions:
            for kind, shown in kinds.items():
                if kind in action and (kind == "cdc" or action[kind].get("dataChange")):
                    yield {shown: {**self._file(folder, action[kind]), "version": number, "timestamp": timestamp}}

    def _file(self, folder: Path, action: dict[str, Any]) -> dict[str, Any]:
        path = unquote(action["path"])
        relative = str((folder / path).relative_to(self.folder))
        file: dict[str, Any] = {
            "url": f"http://127.0.0.1:{self.port}/files/{quote(relative)}?signature={self._signature(relative)}",
            "id": hashlib.md5(relative.encode(), usedforsecurity=False).hexdigest(),
            "partitionValues": action.get("partitionValues") or {},
            "size": (folder / path).stat().st_size,
        }
        return file | ({"stats": action["stats"]} if action.get("stats") else {})

    def _signature(self, path: str) -> str:
        return hmac.new(self.token.encode(), path.encode(), "sha256").hexdigest()

    def _send_file(self, path: str, query: dict[str, str]) -> None:
        if self.headers["Authorization"]:
            raise Refused(400, "Send no token to the storage.")
        if query.get("signature") != self._signature(path) or (self.folder / "expired").exists():
            raise Refused(403, "The address has expired.")
        first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        content = (self.folder / path).read_bytes()
        part = content[first : last + 1]
        self._send(206, part, {"Content-Range": f"bytes {first}-{first + len(part) - 1}/{len(content)}"})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _log(folder: Path, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"_delta_log/{version:020}.json").read_text().splitlines()]


if __name__ == "__main__":
    Handler.port, Handler.token, Handler.folder = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    ThreadingHTTPServer(("127.0.0.1", Handler.port), Handler).serve_forever()
