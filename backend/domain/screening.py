"""Screens documents that come from outside before anything else looks at them.

What PostgreSQL, JSON or the stack of Python cannot hold is refused once, with its path, instead of wherever it happens
to be met: the character U+0000 and unpaired surrogates (RFC 8259 8.2), numbers out of range or of more digits than are
kept, names that an object has twice (RFC 8259 4), and documents nested too deep or of too many values.
"""

import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal, DecimalException
from typing import Any

from backend.domain import limits
from backend.domain.errors import ConfigError
from backend.domain.numbers import as_written

VALUES = 500_000
"""Limit of a document's values. An alias of YAML counts as what it stands for."""
_DIGITS = 1000
"""Of an integer; Python converts no more than 4,300."""
_MOST_ERRORS = 20

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
DEEP = f"This is nested more than {limits.DEPTH} deep."
_OUT_OF_RANGE = "This number is out of range."
_INEXACT = "This number has more digits than can be kept: write it as a text, or with fewer digits."
_REPEATED = "This name occurs more than once in its object: keep one of them."


class Rounded(float):
    """A number that the document has with more digits."""


class Repeating(dict[str, Any]):
    """An object some of whose names occur more than once; the last value of each is kept."""

    def __init__(self, pairs: list[tuple[Any, Any]]) -> None:
        super().__init__(pairs)
        seen: set[Any] = set()
        self.repeated = {name for name, _ in pairs if name in seen or seen.add(name)}  # type: ignore[func-returns-value]


def object_of(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    """The object of these names and values, as ``check`` wants it to be."""
    made = dict(pairs)
    return made if len(made) == len(pairs) else Repeating(pairs)


def load_json(text: bytes) -> Any:
    """Decodes a JSON document in UTF-8 and checks it. Raises ConfigError under the path of what is wrong,
    which is empty for the whole document."""
    try:
        document = json.loads(
            text.decode("utf-8-sig"),
            object_pairs_hook=object_of,
            parse_int=_integer,
            parse_float=decimal_number,
            parse_constant=_constant,
        )
    except UnicodeDecodeError:
        raise ConfigError({"": ["This is not UTF-8."]}) from None
    except json.JSONDecodeError as error:
        cause = f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise ConfigError({"": [f"This is not JSON: {cause}."]}) from None
    except RecursionError:
        raise ConfigError({"": [DEEP]}) from None
    check(document)
    return document


def decimal_number(text: str) -> float:
    """The number, as ``check`` wants it to be."""
    number = float(text)
    try:
        is_kept = not math.isfinite(number) or Decimal(text) == as_written(number)
    except DecimalException:  # its exponent is out of any range
        is_kept = False
    return number if is_kept else Rounded(number)


def check(document: Any, *prefix: str) -> None:
    """Raises ConfigError if the document cannot be stored; paths begin with ``prefix``."""
    errors: dict[str, list[str]] = {}
    for path, sentence in _faults(document, prefix):
        sentences = errors.setdefault(".".join(path), [])
        if sentence not in sentences:
            sentences.append(sentence)
        if len(errors) == _MOST_ERRORS:
            break
    if errors:
        raise ConfigError(errors)


def unstorable(text: str) -> str | None:
    """A sentence about the first character of the text that cannot be stored, if there is one."""
    found = _UNSTORABLE.search(text)
    if found is None:
        return None
    code = ord(found.group())
    if code:
        return f"The unpaired surrogate U+{code:04X} is no character: remove it."
    return "The character U+0000 cannot be stored: remove it."


def _faults(document: Any, prefix: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    count, rest = 0, [(document, prefix)]
    while rest:
        value, path = rest.pop()
        count += 1
        if count > VALUES:
            yield prefix, f"This has more than {VALUES:,} values."
            return
        if isinstance(value, str):
            if sentence := unstorable(value):
                yield path, sentence
        elif isinstance(value, float):
            if not math.isfinite(value):
                yield path, _OUT_OF_RANGE
            elif isinstance(value, Rounded):
                yield path, _INEXACT
        elif isinstance(value, dict | list):
            if len(path) - len(prefix) >= limits.DEPTH:
                yield path[: len(prefix) + 3], DEEP
                continue
            items = value.items() if isinstance(value, dict) else enumerate(value)
            steps = [(_step(name), name, inner) for name, inner in items]
            for step, name, _ in steps:
                if isinstance(name, str) and (sentence := unstorable(name)):
                    yield (*path, step), sentence
                if isinstance(value, Repeating) and name in value.repeated:
                    yield (*path, step), _REPEATED
            rest += [(inner, (*path, step)) for step, _, inner in reversed(steps)]


def _step(name: Any) -> str:
    """As it can be sent and logged."""
    text = str(name)
    return ascii(text)[1:-1] if _UNSTORABLE.search(text) else text


def _integer(text: str) -> int | float:
    return int(text) if len(text) <= _DIGITS else math.inf


def _constant(name: str) -> float:
    """``NaN`` and ``Infinity`` are no JSON, but Python's decoder knows them."""
    return math.nan
