"""Parameters of a query."""

from rest_framework.request import Request


def query_number(request: Request, name: str, *, default: int, most: int) -> int:
    """A number of the query, brought between 1 and ``most``; what is no number counts as the default."""
    text = request.query_params.get(name, "")
    return min(max(int(text), 1), most) if text.isdigit() else default
