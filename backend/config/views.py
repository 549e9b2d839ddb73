from functools import lru_cache

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import ensure_csrf_cookie

_NONCE_PLACEHOLDER = "__CSP_NONCE__"


@lru_cache
def _page() -> str | None:
    index = settings.FRONTEND_DIST / "index.html"
    return index.read_text() if index.exists() else None


@ensure_csrf_cookie
def console(request: HttpRequest) -> HttpResponse:
    """Serves the single-page application, with the response's CSP nonce for the styles that it creates itself."""
    page = _page()
    if page is None:
        return HttpResponse(
            "The console's front end has not been built. Run `make frontend`.", status=503, content_type="text/plain"
        )
    return HttpResponse(page.replace(_NONCE_PLACEHOLDER, str(request.csp_nonce)))  # type: ignore[attr-defined]
