import importlib
import re
import sys
import threading
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from types import ModuleType
from typing import Any, Literal

from pydantic import Field, field_validator

from backend.domain import json, limits, paths
from backend.domain.transforms.base import Step, Transform, TransformError, transforms

_LOOPS = re.compile(r"\.\s*(all|exists|exists_one|map|filter)\s*\(")
_TOKENS = re.compile(r"""r?(\"\"\".*?\"\"\"|'''.*?'''|"(\\.|[^"\\])*"|'(\\.|[^'\\])*')|[()]""", re.DOTALL)
_FIELDS = re.compile(r"\bmessage\b(?:\s*\.\s*([A-Za-z_]\w*)\b(?!\s*\())?")
_MAX_VALUES = 2000
_MAX_COPIED_BYTES = 256 * 1024 * 1024
_FEW_SUMS = 10
_importing = threading.Lock()


@transforms.register
class Expression(Transform):
    """Computes a field, or decides whether a message continues, with the Common Expression Language (CEL)."""

    example = {"type": "expression", "expression": "double(message.amount) * double(message.qty)", "to": "total"}

    type: Literal["expression"] = "expression"
    expression: str = Field(
        min_length=1,
        max_length=2000,
        description="CEL expression on the variable message. Types are not converted implicitly: write "
        "double(message.qty) * 1.5. The entries of an object have no order: a list made of them may differ each time.",
        examples=["message.country in ['BR', 'PT'] && message.total > 10.0"],
    )
    to: paths.FieldPath | None = Field(
        None,
        description="Field to write the result to. If empty, the result must be true or false, and false drops "
        "the message.",
    )
    on_error: Literal["dead_letter", "drop", "skip"] = Field(
        "dead_letter",
        description="A message for which the expression fails: becomes a dead letter, is dropped, or continues "
        "unchanged.",
    )

    @field_validator("expression")
    @classmethod
    def _check_expression(cls, text: str) -> str:
        try:
            _cel().compile(text)
        except ValueError as error:
            raise ValueError(" ".join(str(error).split())[:300]) from None
        if _loops_within_loops(text):
            raise ValueError(
                "A loop (all, exists, exists_one, map, filter) cannot be nested in another one. Use two steps instead."
            )
        return text

    def compile(self) -> Step:
        program = _cel().compile(self.expression)
        target = paths.parse_path(self.to) if self.to else None
        fields = _fields(self.expression)
        loops = _LOOPS.search(self.expression) is not None
        sums = self.expression.count("+")

        def step(document: Any) -> Any:
            try:
                remaining = _values(document, _MAX_VALUES) if loops else _MAX_VALUES
                if remaining <= 0:
                    raise ValueError(f"an expression with a loop accepts messages of at most {_MAX_VALUES} values")
                # Passing a document to CEL costs more than evaluating most expressions, so only the used fields are.
                seen = {f: document[f] for f in fields if f in document} if fields is not None else document
                if loops or sums > _FEW_SUMS:  # each value may be made of everything that is seen, once for each sum
                    copies = (1 + sums) * (1 + _MAX_VALUES - remaining)
                    if copies * len(json.dumps(seen)) > _MAX_COPIED_BYTES:
                        raise limits.TooLargeError("The message is too large for this expression.")
                result = program.execute({"message": seen})
                if target is not None:
                    result = _as_json(result)
                    paths.put(document, target, result)
                elif not isinstance(result, bool):
                    raise ValueError("the result is neither true nor false")
            except limits.TooLargeError:
                raise
            except Exception as error:  # the CEL binding raises many kinds of errors
                if self.on_error == "dead_letter":
                    raise TransformError(f"The expression failed: {error}") from None
                return () if self.on_error == "drop" else (document,)
            if target is not None:
                limits.check_growth(document, result)
            return (document,) if target is not None or result else ()

        return step


@cache
def _cel() -> Any:
    """The library of CEL. Importing it imports its command line, whose terminal library takes longer than the rest of
    a process's start: an empty module stands in for that meanwhile."""
    command_line = "cel.cli"
    with _importing:
        if "cel" in sys.modules:
            return sys.modules["cel"]
        sys.modules[command_line] = ModuleType(command_line)
        try:
            library = importlib.import_module("cel")
        finally:
            del sys.modules[command_line]
        del library.cli
        return library


def _fields(text: str) -> list[str] | None:
    """The message's fields that the expression uses; None if it uses the message as a whole."""
    names = _FIELDS.findall(text)
    return sorted(set(names)) if all(names) else None


def _loops_within_loops(text: str) -> bool:
    """Whether loops are nested: the time of such an expression could not be bounded."""
    opens = {loop.end() - 1 for loop in _LOOPS.finditer(text)}
    inside: list[bool] = []
    for token in _TOKENS.finditer(text):
        if token.group() == "(":
            is_loop = token.start() in opens
            if is_loop and any(inside):
                return True
            inside.append(is_loop)
        elif token.group() == ")" and inside:
            inside.pop()
    return False


def _values(document: Any, remaining: int) -> int:
    """``remaining`` minus the number of values in the document; 0 or less if there are too many."""
    remaining -= 1
    if remaining > 0 and isinstance(document, dict | list):
        for part in document.values() if isinstance(document, dict) else document:
            remaining = _values(part, remaining)
            if remaining <= 0:
                break
    return remaining


def _as_json(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str() | Decimal():
            return value
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case timedelta():
            return value.total_seconds()
        case dict():
            # CEL's maps have no order: sorted, the same message has the same result whenever it is processed.
            return {
                key: _as_json(part)
                for key, part in sorted(((str(key), part) for key, part in value.items()), key=lambda entry: entry[0])
            }
        case list() | tuple():
            return [_as_json(part) for part in value]
    raise ValueError(f"the result is of type {type(value).__name__}, which JSON cannot represent")
