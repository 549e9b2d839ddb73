"""Query parameters."""

from uuid import UUID

from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from backend.domain.numbers import small_number


def query_number(request: Request, name: str, *, default: int, most: int) -> int:
    """A numeric query parameter, clamped to 1 and ``most``; the default if it is not a number."""
    number = small_number(request.query_params.get(name, ""))
    return default if number is None else min(max(number, 1), most)


def query_ids(request: Request, name: str, *, most: int) -> list[UUID]:
    """A query parameter that names several objects, separated by commas."""
    try:
        ids = [UUID(text) for text in request.query_params.get(name, "").split(",") if text]
    except ValueError:
        raise ValidationError({name: ["Enter ids, separated by commas."]}) from None
    if len(ids) > most:
        raise ValidationError({name: [f"Enter at most {most} ids."]})
    return ids
