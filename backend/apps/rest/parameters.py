"""Query parameters."""

from rest_framework.request import Request


def query_number(request: Request, name: str, *, default: int, most: int) -> int:
    """A numeric query parameter, clamped to 1 and ``most``; the default if it is not a number."""
    text = request.query_params.get(name, "")
    return min(max(int(text), 1), most) if text.isdigit() else default
