"""How a JSON API divides its records into pages.

A page's place is a JSON value, None for the first page.
"""

import re
from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Literal, NamedTuple
from urllib.parse import urljoin, urlsplit

from pydantic import Field

from backend.connectors.http.modes import Validators
from backend.connectors.parts.raw_json import raw_at
from backend.domain import json
from backend.domain.capabilities import DeliveryError
from backend.domain.http_text import encoded
from backend.domain.model import SAME_SOURCE, StrictModel
from backend.domain.paths import FieldPath, parse_path
from backend.domain.reasons import Reason

ParameterName = Annotated[str, Field(min_length=1, max_length=200)]

_PARAMETER = re.compile(r';\s*([^\s=;,]+)\s*(?:=\s*(?:"([^"]*)"|([^",;\s]*)))?')
_LINK = re.compile(r'<([^>]*)>((?:\s*;\s*[^\s=;,]+\s*(?:=\s*(?:"[^"]*"|[^",;\s]*))?)*)')


class Page(NamedTuple):
    """A page as it was answered. ``link`` is its Link header, ``url`` its own address; ``seen`` tells it from a later
    answer."""

    url: str
    answer: bytes
    records: list[bytes]
    link: str = ""
    seen: Validators | None = None


class Paging(StrictModel, ABC):
    """Base of the kinds of paging."""

    headers: ClassVar[tuple[str, ...]] = ()
    """The headers of an answer that it needs."""
    linked: ClassVar[bool] = False
    """Whether a place is an address below the API's origin; otherwise it becomes parameters."""

    def parameters(self, place: Any) -> dict[str, str]:
        """The query parameters that ask for the page."""
        return {}

    @abstractmethod
    def following(self, place: Any, page: Page) -> Any | None:
        """The next page's place; None after the last one. Raises DeliveryError."""


class NoPaging(Paging):
    """One answer has all records."""

    type: Literal["none"] = "none"

    def following(self, place: Any, page: Page) -> Any | None:
        return None


def _page_size(**extra: Any) -> Any:
    description = "Records on a page, where there is a parameter for it."
    return Field(100, ge=1, le=10_000, description=description, json_schema_extra=extra)


class _Sized(Paging):
    size_parameter: str = Field(
        "", description="Query parameter for the number of records on a page; without it, the API chooses."
    )
    size: int = _page_size()

    def parameters(self, place: Any) -> dict[str, str]:
        return {self.size_parameter: str(self.size)} if self.size_parameter else {}


class PageNumbers(_Sized):
    """Pages are numbered."""

    type: Literal["page"] = "page"
    page_parameter: ParameterName = Field("page", description="Query parameter for the number of the page.")
    first_page: int = Field(1, ge=0, le=1, description="Number of the first page.")
    last_page: FieldPath | None = Field(
        None,
        description="Field of the answer with the number of the last page. Without it, reading ends with the first "
        "page that has no records.",
        examples=["meta.last_page"],
    )

    def parameters(self, place: Any) -> dict[str, str]:
        return {**super().parameters(place), self.page_parameter: str(self._number(place))}

    def following(self, place: Any, page: Page) -> Any | None:
        last = _value(page.answer, self.last_page)
        number = self._number(place)
        if not page.records or (isinstance(last, int) and number >= last):
            return None
        return number + 1

    def _number(self, place: Any) -> int:
        return self.first_page if place is None else int(place)


class Offset(_Sized):
    """Pages begin after a number of records. Reading ends with the first page that has none."""

    type: Literal["offset"] = "offset"
    offset_parameter: ParameterName = Field("offset", description="Query parameter for the number of records to skip.")
    size_parameter: str = Field(
        "limit", description="Query parameter for the number of records on a page; without it, the API chooses."
    )
    # A place is a number of records here, and not of pages, so that it stays the same with pages of another size.
    size: int = _page_size(**SAME_SOURCE)

    def parameters(self, place: Any) -> dict[str, str]:
        return {**super().parameters(place), self.offset_parameter: str(place or 0)}

    def following(self, place: Any, page: Page) -> Any | None:
        return (place or 0) + len(page.records) if page.records else None


class Cursor(Paging):
    """Each answer, or its last record, has a value that asks for the next page."""

    type: Literal["cursor"] = "cursor"
    cursor_parameter: ParameterName = Field(
        "cursor", description="Query parameter for the value.", examples=["starting_after"]
    )
    cursor_in: Literal["answer", "last_record"] = Field("answer", description="Where the value is.")
    cursor: FieldPath = Field(
        description="Field with the value. Reading ends when it is missing, null or empty, or when it stays the same.",
        examples=["meta.next_cursor"],
    )

    def parameters(self, place: Any) -> dict[str, str]:
        return {} if place is None else {self.cursor_parameter: json.text(place)}

    def following(self, place: Any, page: Page) -> Any | None:
        if self.cursor_in == "answer":
            holder = page.answer
        elif page.records:
            holder = page.records[-1]
        else:
            return None
        cursor = _value(holder, self.cursor)
        if isinstance(cursor, dict | list):
            raise DeliveryError(Reason.ANSWER, f"The cursor {self.cursor} is an object or a list.", retryable=False)
        return None if cursor in (None, "", False, place) else cursor


class NextLink(Paging):
    """A field has the address of the next page, which must have the same scheme, host and port."""

    type: Literal["next_link"] = "next_link"
    next: FieldPath = Field(
        description="Field of the answer with the address. Reading ends when it is missing, null or empty.",
        examples=["links.next"],
    )
    linked = True

    def following(self, place: Any, page: Page) -> Any | None:
        link = _value(page.answer, self.next)
        return below_origin(page.url, link) if isinstance(link, str) and link else None


class LinkHeader(Paging):
    """The header Link has the address of the next page, which must have the same scheme, host and port."""

    type: Literal["link_header"] = "link_header"
    headers = ("Link",)
    linked = True

    def following(self, place: Any, page: Page) -> Any | None:
        for target, parameters in _LINK.findall(page.link):
            relations = [
                quoted or plain for name, quoted, plain in _PARAMETER.findall(parameters) if name.lower() == "rel"
            ]
            if relations and "next" in relations[0].lower().split():
                return below_origin(page.url, target)
        return None


AnyPaging = Annotated[NoPaging | PageNumbers | Offset | Cursor | NextLink | LinkHeader, Field(discriminator="type")]


def below_origin(url: str, link: str) -> str:
    """The link's path and query. Raises DeliveryError when it leads to another origin than the address it was read
    from, which would receive the credentials."""
    try:
        target, own = urlsplit(urljoin(url, link.strip())), urlsplit(url)
        same = (target.scheme, target.hostname, target.port) == (own.scheme, own.hostname, own.port)
    except ValueError:
        same = False
    if not same or target.username is not None:
        text = f"The API's next page is at another address, which is not read: {link[:200]}."
        raise DeliveryError(Reason.FORBIDDEN, text, retryable=False)
    path = "/" + target.path.lstrip("/")
    return encoded(f"{path}?{target.query}" if target.query else path)


def _value(document: bytes, path: str | None) -> Any:
    raw = raw_at(document, parse_path(path)) if path else None
    return None if raw is None else json.loads(raw)
