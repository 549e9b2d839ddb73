"""The REST protocol of Delta Sharing: what tables there are, their versions, and the files that hold their rows."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from backend.connectors.delta_sharing.connection import DeltaSharingConnection
from backend.connectors.parts.error_text import error_text
from backend.connectors.parts.field_error import FieldError
from backend.domain import json
from backend.domain.capabilities import DeliveryError
from backend.domain.reasons import Reason
from backend.network.http_client import HttpClient, HttpError, Response

_CONNECT_SECONDS = 10.0
_SILENT_SECONDS = 30.0
_CALL_SECONDS = 300.0
_ANSWER_BYTES = 64 * 1024 * 1024
_PAGE_FILES = 1000
_MOST_FILES = 200_000
_VERSION_HEADER = "delta-table-version"
_LARGEST_LONG = 2**63 - 1
"""Delta's numbers are those of Java."""
_LAST_MILLISECOND = 253_402_300_799_999
"""Of the year 9999."""
_HEADERS = [
    "Expect:",
    "Accept: application/x-ndjson, application/json",
    "delta-sharing-capabilities: responseformat=parquet;includeendstreamaction=true",
]
_RANKS = {"remove": 0, "cdf": 1, "add": 2, "file": 2}
"""What comes first within a version: a row may be removed with one file and added with another."""

Place = list[Any]
"""Where a file stands in the order of reading: its version, rank and id."""


@dataclass(frozen=True, slots=True)
class File:
    """A Parquet file, and what its rows are: those of a snapshot, inserted, deleted, or described by a column of
    the file."""

    place: Place
    url: str
    size: int
    partition: dict[str, str | None]
    change: str
    version: int
    timestamp: int | None
    rows: int | None


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a version, or of the changes up to it, in the order of reading; columns with their Delta types."""

    version: int
    columns: dict[str, Any]
    files: Sequence[File]


class Provider:
    """Calls a provider's server. Made, used and closed on one event loop."""

    def __init__(self, connection: DeltaSharingConnection) -> None:
        self._profile = connection.profile
        self._client = HttpClient(
            tls=connection.tls_settings(),
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_SILENT_SECONDS,
            kept_bytes=_ANSWER_BYTES,
            kept_headers=[_VERSION_HEADER],
        )

    async def close(self) -> None:
        await self._client.close()

    async def shares(self) -> list[str]:
        """The first page of them. Raises DeliveryError."""
        answer = await self._call("GET", "/shares?maxResults=100")
        try:
            return [str(share["name"]) for share in json.loads(answer.body).get("items", ())]
        except (json.InvalidJsonError, AttributeError, KeyError, TypeError):
            raise _nonsense() from None

    async def version(self, table: str) -> int:
        """The table's present version. Raises DeliveryError."""
        return _version(await self._call("GET", f"{table}/version"))

    async def snapshot(self, table: str, version: int | None, hints: Sequence[str]) -> Listing:
        """All rows of a version, or of the present one. Raises DeliveryError."""
        query: dict[str, Any] = {"maxFiles": _PAGE_FILES}
        if version is not None:
            query["version"] = version
        if hints:
            query["predicateHints"] = list(hints)

        async def page(token: str) -> Response:
            return await self._call("POST", f"{table}/query", query | ({"pageToken": token} if token else {}))

        return await self._listed(page)

    async def changes(self, table: str, first: int, last: int) -> Listing:
        """What changed from one version to another, both included. Raises DeliveryError."""
        query: dict[str, Any] = {"startingVersion": first, "endingVersion": last, "maxFiles": _PAGE_FILES}

        async def page(token: str) -> Response:
            parameters = urlencode(query | ({"pageToken": token} if token else {}))
            return await self._call("GET", f"{table}/changes?{parameters}")

        listing = await self._listed(page)
        return Listing(last, listing.columns, listing.files)

    async def _listed(self, page: Any) -> Listing:
        """Follows the pages, of which a server that knows none sends one."""
        files: list[File] = []
        columns: dict[str, Any] = {}
        version: int | None = None
        token = ""
        while True:
            answer = await page(token)
            token = ""
            version = _version(answer) if version is None else version
            try:
                for line in answer.body.splitlines():
                    action = json.loads(line) if line.strip() else {}
                    columns = _columns(action) or columns
                    token = action.get("endStreamAction", {}).get("nextPageToken") or token
                    files += [file_of(kind, action[kind], version) for kind in _RANKS if kind in action]
            except (json.InvalidJsonError, AttributeError, KeyError, TypeError, ValueError):
                raise _nonsense() from None
            if len(files) > _MOST_FILES:
                text = f"The table consists of more than {_MOST_FILES:,} files, which is more than can be read."
                raise DeliveryError(Reason.ANSWER, text, retryable=False)
            if not token:
                return Listing(version, columns, sorted(files, key=lambda file: file.place))

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Response:
        headers = [*_HEADERS, f"Authorization: Bearer {self._profile.token}"]
        if body is not None:
            headers.append("Content-Type: application/json; charset=utf-8")
        sent = json.dumps(body) if body is not None else None
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                answer = await self._client.request(method, f"{self._profile.endpoint}{path}", headers, sent)
        except TimeoutError:
            text = f"The sharing server did not answer within {_CALL_SECONDS:g} seconds."
            raise DeliveryError(Reason.TIMEOUT, text, retryable=True) from None
        except HttpError as error:
            text = f"The sharing server: {error}"
            raise FieldError.at(error.field, error.kind, text, retryable=error.kind != Reason.FORBIDDEN) from None
        if answer.status != 200:
            raise _refused(answer, self._profile.expires_at)
        if not answer.complete:
            text = f"An answer of the sharing server is longer than {_ANSWER_BYTES // 1024 // 1024} MB."
            raise DeliveryError(Reason.ANSWER, text, retryable=False)
        return answer


def table_path(share: str, schema: str, table: str) -> str:
    names = (quote(name, safe="") for name in (share, schema, table))
    return "/shares/{}/schemas/{}/tables/{}".format(*names)


def _version(answer: Response) -> int:
    try:
        return json.bounded_int(json.loads(answer.headers[_VERSION_HEADER]), 0, _LARGEST_LONG)
    except (KeyError, ValueError):
        raise _nonsense("without the version of the table") from None


def _columns(action: dict[str, Any]) -> dict[str, Any]:
    if "metaData" not in action:
        return {}
    return {field["name"]: field["type"] for field in json.loads(action["metaData"]["schemaString"])["fields"]}


def file_of(kind: str, action: dict[str, Any], listed: int) -> File:
    """The file that an action of this kind names. Raises KeyError, TypeError, AttributeError and ValueError."""
    version = listed if kind == "file" else json.bounded_int(action["version"], 0, _LARGEST_LONG)
    timestamp = action.get("timestamp")
    rows = json.loads(action["stats"]).get("numRecords") if action.get("stats") else None
    return File(
        place=[version, _RANKS[kind], action["id"]],
        url=action["url"],
        size=json.bounded_int(action["size"], 0, _LARGEST_LONG),
        partition=action.get("partitionValues") or {},
        change={"add": "insert", "remove": "delete"}.get(kind, kind),
        version=version,
        timestamp=None if timestamp is None else json.bounded_int(timestamp, 0, _LAST_MILLISECOND),
        rows=None if rows is None else json.bounded_int(rows, 0, _LARGEST_LONG),
    )


def _refused(answer: Response, expires_at: str) -> DeliveryError:
    explanation = error_text(answer.body, "message")
    detail = f": {explanation}" if explanation else ""
    match answer.status:
        case 401 | 403:
            expiry = f" It is valid until {expires_at}." if expires_at else ""
            text = f"The sharing server rejects the profile's token{detail}.{expiry}"
        case 404:
            text = f"There is no such table, or it is not shared with this profile{detail}."
        case _:
            text = f"The sharing server answered {answer.status}{detail}."
    retryable = answer.status == 429 or answer.status >= 500
    return DeliveryError(
        f"http_{answer.status}",
        text,
        retryable=retryable,
        retry_after=answer.retry_after,
        status=str(answer.status),
        response=explanation,
    )


def _nonsense(what: str = "in a way that is not Delta Sharing's") -> DeliveryError:
    text = f"The sharing server answered {what}: check the endpoint of the profile."
    return DeliveryError(Reason.ANSWER, text, retryable=False)
