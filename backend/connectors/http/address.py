"""Paths with placeholders, below a connection's address."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from backend.domain import paths, templates
from backend.domain.message_templates import UnfitValueError, scalar_text

_QUERY = re.compile(r"\?(?![^{}]*\}\})")
"""The first one begins the query, unless it is in a placeholder."""


def compile_path(template: str, get: templates.Get = paths.get) -> Callable[[Any], str]:
    """Compiles a path and its query to a function of the document.

    Values are percent-encoded: they can neither add segments to the path nor parameters to the query. The function
    raises MissingFieldError, and UnfitValueError for a value that would lead to another place, such as ``..``.
    """
    path_template, *query_template = _QUERY.split(template, maxsplit=1)
    path = templates.compile_text(path_template, _segment, get=get)
    query = templates.compile_text(query_template[0], _quoted, get=get) if query_template else None

    def render(document: Any) -> str:
        rendered = path(document)
        if not {".", ".."}.isdisjoint(rendered.split("/")):
            raise UnfitValueError(f"The address would lead elsewhere: {rendered[:200]}.")
        return rendered if query is None else f"{rendered}?{query(document)}"

    return render


def _segment(value: Any) -> str:
    quoted = _quoted(value)
    if not quoted:
        raise UnfitValueError("A value in the path of the address is empty, so that the address would lead elsewhere.")
    return quoted


def _quoted(value: Any) -> str:
    return quote(scalar_text(value), safe="")
