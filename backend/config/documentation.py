"""The documentation's site among the files that WhiteNoise serves."""

import base64
import hashlib
import re
from pathlib import Path
from wsgiref.headers import Headers

_INLINE_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def add_content_security_policy(headers: Headers, path: str, url: str) -> None:
    """For pages of the site, whose scripts are its own files and those in the page, known by their hashes."""
    if url.startswith("/docs/") and path.endswith(".html"):
        headers["Content-Security-Policy"] = _policy(Path(path).read_text())


def _policy(page: str) -> str:
    digests = [hashlib.sha256(script.encode()).digest() for script in _INLINE_SCRIPT.findall(page)]
    hashes = " ".join(sorted({f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests}))
    return (
        f"default-src 'none'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
