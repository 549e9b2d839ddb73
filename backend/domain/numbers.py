"""Numbers as they are written: a double stands for the shortest decimal that is read as it."""

from decimal import Decimal


def as_written(number: int | float | Decimal) -> Decimal:
    """The number as a decimal, without rounding: 0.1 for the double nearest to 0.1."""
    return Decimal(repr(number)) if isinstance(number, float) else Decimal(number)


def is_double(number: Decimal) -> bool:
    """Whether a double keeps every digit of the number, which is finite."""
    return as_written(float(number)) == number


def small_number(text: str) -> int | None:
    """The whole number that at most ten ASCII digits denote, as in an address or a parameter; None for any other text.
    ``int`` raises ValueError for some of what ``str.isdigit`` accepts, such as ``²``, and for thousands of digits."""
    return int(text) if len(text) <= 10 and text.isascii() and text.isdigit() else None
