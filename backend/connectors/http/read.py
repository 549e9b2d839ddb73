"""Polling of JSON APIs."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote, urlsplit

from msgspec.structs import replace
from pydantic import Field

from backend.connectors.http.connection import HttpConnection
from backend.connectors.http.modes import Mode, Progress, Validators, digest
from backend.connectors.http.paging import AnyPaging, LinkHeader, NoPaging, Page, ParameterName
from backend.connectors.parts.http_address import header_line
from backend.connectors.parts.http_answers import refused
from backend.connectors.parts.http_endpoint import Endpoint
from backend.connectors.parts.raw_json import raw_at, raw_items
from backend.domain import json
from backend.domain.capabilities import Batch, DeliveryError, InputRecord, Options, ReadBatch
from backend.domain.http_text import HeaderName, HeaderValue
from backend.domain.model import ADVANCED, SAME_SOURCE
from backend.domain.paths import FieldPath, parse_path
from backend.domain.reasons import Reason
from backend.network.http_client import HttpError, Response

_READ_SECONDS = 600.0
"""After this time, reading ends at the next page."""
_ATTEMPTS = 4
_FIRST_WAIT = 1.0
_LONGEST_WAIT = 30.0
"""A longer time that the API asks for is waited for between two readings."""
_VALIDATORS = ("ETag", "Last-Modified")
_ETAG = re.compile(r"[!-~]{1,1000}")
_DATE = re.compile(r"[ -~]{1,100}")
_NOT_MODIFIED = 304


class HttpReadOptions(Options):
    """Records of a JSON API that become messages."""

    path: str = Field(
        "", max_length=2000, pattern=r"^\S*$", description="Appended to the connector's address.", examples=["/orders"]
    )
    parameters: dict[ParameterName, str] = Field(
        default_factory=dict, description="Query parameters of each request.", examples=[{"status": "paid"}]
    )
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict, description="Further headers of each request.")
    records: FieldPath | None = Field(
        None,
        description="Field of the answer with the list of records. Without it, the answer itself is the list.",
        examples=["data.items"],
    )
    id: FieldPath | None = Field(
        None,
        description="Field that identifies a record, which is also its ordering key. With it, a record that is read "
        "again makes no second message unless it has changed.",
        examples=["id"],
    )
    mode: Mode = Field(description="Which records are read.")
    paging: AnyPaging = Field(default_factory=NoPaging, description="How the API divides its records into pages.")
    pages_per_second: float | None = Field(
        None, gt=0, le=100, description="Most requests per second.", json_schema_extra=ADVANCED | SAME_SOURCE
    )
    timeout_seconds: float = Field(
        60.0,
        ge=1,
        le=300,
        description="Longest time for a page, in seconds.",
        json_schema_extra=ADVANCED | SAME_SOURCE,
    )
    page_bytes: int = Field(
        4 * 1024 * 1024,
        ge=1024,
        le=32 * 1024 * 1024,
        description="Most bytes in an answer.",
        json_schema_extra=ADVANCED | SAME_SOURCE,
    )


class HttpReadBatch(ReadBatch[HttpConnection, HttpReadOptions]):
    """Polls a JSON API page by page.

    At least once. Reading goes on after the last page whose records were stored; a record that is read again has the
    same message ID if the field that identifies it is named. The largest value of an incremental reading is used once
    all pages have been read, so that their order does not matter. Pages that are numbered, or begin after a number of
    records, shift when records are added or removed meanwhile, so that a record may be missed; cursors and links have
    no such gap. An API that limits its answer without paging has to sort by the growing field. Where one answer had all
    that is new, the next reading sends its ETag and Last-Modified along, so that an API that knows them answers briefly
    when nothing has changed (304)."""

    options_model = HttpReadOptions

    async def open(self) -> None:
        options = self.options
        headers = (*options.paging.headers, *_VALIDATORS)
        self._endpoint = Endpoint(self.connection, kept_bytes=options.page_bytes, kept_headers=headers)
        self._headers = ["Accept: application/json", *(header_line(*header) for header in options.headers.items())]
        self._source = digest([json.dumps([options.path, options.parameters, options.records])])
        self._id = parse_path(options.id) if options.id else None
        self._next_request = 0.0

    async def close(self) -> None:
        await self._endpoint.close()

    def secrets(self) -> list[str]:
        return self.connection.sent_secrets()

    async def read(self, breakpoint: Any) -> AsyncIterator[Batch]:
        """Ends after some minutes, before the lease does."""
        until = time.monotonic() + _READ_SECONDS
        progress = Progress.of(breakpoint)
        begun = self.options.mode.begun(progress) if time.time() >= progress.pause_until else None
        if begun is None:
            return
        progress = replace(begun, pause_until=0.0)
        while True:
            try:
                page = await self._page(progress)
            except DeliveryError as error:
                if error.retry_after is not None:
                    pause = time.time() + error.retry_after
                    yield Batch((), replace(progress, pause_until=pause).breakpoint())
                raise
            records, progress, is_last = self._taken(progress, page)
            yield Batch(records, progress.breakpoint())
            if (is_last and not (records and self._is_limited())) or time.monotonic() > until:
                return

    def _is_limited(self) -> bool:
        """Whether an answer without paging may have a limit: there may be more after its records."""
        mode, paging = self.options.mode, self.options.paging
        return mode.type == "incremental" and mode.parameter != "" and isinstance(paging, NoPaging)

    def _taken(self, progress: Progress, page: Page | None) -> tuple[list[InputRecord], Progress, bool]:
        """The page's records, where reading goes on after them, and whether it was the last page of the run. Without a
        page, nothing has changed since the last run."""
        if page is None:
            _, reached = self.options.mode.taken(progress, [])
            return [], replace(self.options.mode.ended(reached), seen=progress.seen), True
        page_digest = digest(page.records)
        if page.records and progress.page is not None and page_digest == progress.digest:
            text = "The API answers the same page again: check the parameters of the paging."
            raise DeliveryError(Reason.ANSWER, text, retryable=False)
        following = self.options.paging.following(progress.page, page)
        new, reached = self.options.mode.taken(progress, page.records)
        records = [self._record(record, progress.run) for record in new]
        if following is None:
            ended = self.options.mode.ended(reached)
            return records, replace(ended, seen=page.seen) if progress.page is None else ended, True
        return records, replace(reached, page=following, digest=page_digest), False

    def _record(self, record: bytes, run: int) -> InputRecord:
        if self._id is None:
            return InputRecord(record)
        written = raw_at(record, self._id)
        value = json.loads(written) if written is not None else None
        identity = json.dumps([self._source, run, value, digest([record])]).decode()
        return InputRecord(record, key=None if value is None else json.text(value).encode() or None, identity=identity)

    async def _page(self, progress: Progress) -> Page | None:
        """None when the run's only page has not changed since the last run. Raises DeliveryError."""
        url = self._url(progress)
        answer = await self._answer(url, self._conditions(url, progress))
        if answer.status == _NOT_MODIFIED:
            return None
        if not answer.complete:
            text = f"The API's answer is longer than {self.options.page_bytes:,} bytes: ask for smaller pages."
            raise DeliveryError(Reason.ANSWER, text, retryable=False)
        link = answer.headers.get("link", "")
        return Page(url, answer.body, self._records(answer.body), link, self._validators(url, answer))

    @staticmethod
    def _conditions(url: str, progress: Progress) -> list[str]:
        """Headers that ask for the page only if it has changed."""
        seen = progress.seen
        if seen is None or progress.page is not None or seen.url != digest([url.encode()]):
            return []
        headers = {"If-None-Match": seen.etag, "If-Modified-Since": seen.modified}
        return [header_line(name, value) for name, value in headers.items() if value]

    def _validators(self, url: str, answer: Response) -> Validators | None:
        """None with links in a header, since the answer may stay the same when there are more pages."""
        etag, modified = (answer.headers.get(name.lower(), "") for name in _VALIDATORS)
        etag, modified = etag if _ETAG.fullmatch(etag) else "", modified if _DATE.fullmatch(modified) else ""
        if isinstance(self.options.paging, LinkHeader) or not (etag or modified):
            return None
        return Validators(digest([url.encode()]), etag, modified)

    def _records(self, body: bytes) -> list[bytes]:
        path = self.options.records
        if not body.strip():
            return []
        try:
            value = raw_at(body, parse_path(path) if path else ())
            records = raw_items(value) if value is not None else None
            if records is None and (value is None or json.loads(value) is not None):
                where = f"at {path}" if path else "in the whole answer"
                text = f"The API's answer has no list of records {where}: {body[:200].decode(errors='replace')}"
                raise DeliveryError(Reason.ANSWER, text, retryable=False)
        except json.InvalidJsonError as error:
            raise DeliveryError(Reason.ANSWER, f"The API's answer is not JSON: {error}", retryable=False) from None
        return records or []

    def _url(self, progress: Progress) -> str:
        options, paging = self.options, self.options.paging
        if paging.linked and progress.page is not None:
            own = urlsplit(str(self.connection.url))
            return f"{own.scheme}://{own.netloc}{progress.page}"
        parameters = {**options.parameters, **options.mode.parameters(progress), **paging.parameters(progress.page)}
        query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in parameters.items())
        url = self.connection.address(options.path)
        return url + (("&" if "?" in url else "?") + query if query else "")

    async def _answer(self, url: str, conditions: list[str]) -> Response:
        """A successful answer, or one that nothing has changed. Waits when the API asks for it, and retries some times.
        Raises DeliveryError."""
        attempt = 1
        while True:
            answer = await self._request(url, conditions)
            if answer.is_success or (conditions and answer.status == _NOT_MODIFIED):
                return answer
            error = refused(answer, who="API", final="correct the connector or the options of the input")
            wait = error.retry_after or _FIRST_WAIT * 2 ** (attempt - 1)
            if not error.retryable or attempt == _ATTEMPTS or wait > _LONGEST_WAIT:
                raise error
            attempt += 1
            await asyncio.sleep(wait)

    async def _request(self, url: str, conditions: list[str]) -> Response:
        seconds, rate = self.options.timeout_seconds, self.options.pages_per_second
        await asyncio.sleep(self._next_request - time.monotonic())
        if rate is not None:
            self._next_request = time.monotonic() + 1 / rate
        try:
            async with asyncio.timeout(seconds):
                return await self._endpoint.request("GET", url, [*self._headers, *conditions])
        except TimeoutError:
            raise DeliveryError(Reason.TIMEOUT, f"No answer within {seconds:g} seconds.", retryable=True) from None
        except HttpError as error:
            raise DeliveryError(error.kind, f"The API: {error}", retryable=error.kind != Reason.FORBIDDEN) from None
