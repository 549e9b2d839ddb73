"""Error responses of the ingest: RFC 9457 problem+json."""

from backend.domain import json
from backend.ingest.encodings import SUPPORTED


class Problem(Exception):
    """A rejected request. ``detail`` says what is wrong and what to do."""

    def __init__(self, status: int, title: str, detail: str, *, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.detail = detail
        self.retry_after = retry_after

    def body(self) -> bytes:
        return json.dumps({"type": "about:blank", "title": self.title, "status": self.status, "detail": self.detail})

    def headers(self) -> list[tuple[bytes, bytes]]:
        headers = [(b"content-type", b"application/problem+json")]
        if self.retry_after is not None:
            headers.append((b"retry-after", str(self.retry_after).encode()))
        if self.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if self.status == 415:
            headers.append((b"accept-encoding", ", ".join(SUPPORTED).encode()))
        return headers
