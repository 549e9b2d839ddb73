import importlib
import math
import re
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from types import ModuleType
from typing import Any, Literal

from pydantic import Field, field_validator

from backend.domain import json, limits, paths
from backend.domain.message_templates import Metadata
from backend.domain.patterns import check_pattern, compiled_size, pattern_size
from backend.domain.transforms.base import MetadataStep, Step, Transform, TransformError, transforms

_LOOPS = re.compile(r"\.\s*(all|exists|exists_one|existsOne|map|filter)\s*\(")
_MATCHES = re.compile(r"\bmatches\s*\((?!([^()]*,)?\s*''\s*\))")
"""With another regular expression than a text, which is from the message then."""
_LITERAL_PATTERN = re.compile(r"\bmatches\s*\((?:[^()]*,)?\s*''\s*\)")
_COUNTED = re.compile(r"\{\s*\d")
_ESCAPES = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
_CONTROLS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_METADATA = re.compile(r"(?:\.\s*)?\bmetadata\b")
"""With a dot, it is a field of that name."""
_FIELDS = re.compile(r"\bmessage\b(?:\s*\.\s*([A-Za-z_]\w*)\b(?!\s*\())?")
_TEXTS_AND_COMMENTS = re.compile(
    r"""
    //[^\n]*
    | [bB]?[rR](?:\"{3}.*?\"{3} | '{3}.*?'{3} | "[^"\n]*" | '[^'\n]*')
    | [bB]?(?:\"{3}(?:\\.|[^\\])*?\"{3} | '{3}(?:\\.|[^\\])*?'{3} | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*')
    """,
    re.DOTALL | re.VERBOSE,
)
_MAX_VALUES = 2000
_MAX_HELD_BYTES = 256 * 1024 * 1024
_MAX_HELD_VALUES = 32 * 1024 * 1024
"""Each takes some 32 bytes, however short it is as JSON."""
_MAX_COPIED_BYTES = 10_000_000_000
_MAX_COPIED_VALUES = 100_000_000
"""One after the other, which takes a second or two."""
_FEW_COPIES = 10
_MAX_PATTERN_BYTES = 64 * 1024
_MAX_COMPILED = 1_000_000
_COMPILING = 50
"""How much longer a step of a regular expression takes to compile than to match; each call compiles it anew."""
_INTEGERS = range(-(2**63), 2**64)
_MOST_DIGITS = 307
"""Of a number before the point, less one, that is within the range of doubles whatever its digits are."""
_importing = threading.Lock()


@transforms.register
class Expression(Transform):
    """Computes a field, or decides whether a message continues, with the Common Expression Language (CEL)."""

    example = {"type": "expression", "expression": "double(message.amount) * double(message.qty)", "to": "total"}

    type: Literal["expression"] = "expression"
    expression: str = Field(
        min_length=1,
        max_length=2000,
        description="CEL expression on the variable message, and on metadata: that has the id, key, received_at, "
        "content_type, pipeline, version, source and headers of the received message, such as metadata.headers.tenant. "
        "Types are not converted implicitly: write double(message.qty) * 1.5. The entries of an object have no order: "
        "a list made of them may differ each time.",
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
        code = _Code(text)
        if code.nests_loops:
            raise ValueError(
                "A loop (all, exists, exists_one, map, filter) cannot be nested in another one. Use two steps instead."
            )
        for pattern in code.patterns:
            check_pattern(pattern)
        if sum(map(compiled_size, code.patterns)) > _MAX_COMPILED:
            raise ValueError("The regular expressions are too large. Lower their repetitions, or write [a-z] for \\w.")
        if code.loops and code.takes_patterns:
            raise ValueError("In a loop, the regular expression of matches has to be a text.")
        return text

    @property
    def uses_metadata(self) -> bool:
        return _Code(self.expression).uses_metadata

    def compile(self) -> Step:
        return self._compiled()

    def compile_with_metadata(self) -> MetadataStep:
        return self._compiled()

    def _compiled(self) -> Callable[..., Any]:
        program = _cel().compile(self.expression)
        target = paths.parse_path(self.to) if self.to else None
        code = _Code(self.expression)

        def step(document: Any, metadata: Metadata | None = None) -> Any:
            try:
                known = {} if metadata is None else {"metadata": metadata.document}
                whole = [document, known] if known else document
                values = limits.count_values(whole, _MAX_VALUES) if code.loops else 0
                if values > _MAX_VALUES:
                    raise ValueError(f"an expression with a loop accepts messages of at most {_MAX_VALUES} values")
                # Passing a document to CEL costs more than evaluating most expressions, so only the used fields are.
                seen = _seen(code.fields, document)
                code.check([seen, known] if known else seen, values)
                _check_numbers(seen)
                result = program.execute({"message": seen, **known})
                if target is not None:
                    result = _as_json(result)
                    paths.put(document, target, result)
                elif not isinstance(result, bool):
                    raise ValueError("the result is neither true nor false")
            except limits.TooLargeError:
                raise
            except Exception as error:  # the CEL binding raises many kinds of errors
                if self.on_error == "dead_letter":
                    raise TransformError(f"The expression failed: {_sentence(error)}") from None
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


class _Code:
    """What is known about an expression without evaluating it, to bound what that takes."""

    def __init__(self, text: str) -> None:
        # Texts and comments may hold anything that looks like code.
        literals: list[str] = []

        def blanked(found: re.Match[str]) -> str:
            if found.group().startswith("/"):
                return " "
            literals.append(found.group())
            return "''"

        code = _TEXTS_AND_COMMENTS.sub(blanked, text)
        outside, loops, self.nests_loops = _parts(code)
        maps = " ".join(body for name, body in loops if name == "map")
        self.loops = bool(loops)
        self.takes_patterns = _MATCHES.search(code) is not None
        self._texts = [_value(literal) for literal in literals]
        self.patterns = [self._texts[code.count("''", 0, found.end()) - 1] for found in _LITERAL_PATTERN.finditer(code)]
        """Regular expressions that are written in the expression."""
        self._matched = sum(map(pattern_size, self.patterns))
        self._compiled = sum(map(compiled_size, self.patterns))
        self._matches = len(re.findall(r"\bmatches\s*\(", code))
        self._is_joined = "+" in code
        self.fields = _fields(code)
        """The message's fields that the expression uses; None if it uses the message as a whole."""
        # Each + and each comma makes a value of one more, and each loop does so with what a former one made.
        self._joins = math.prod([_joined(outside), *(_joined(body) - 1 for _, body in loops)])
        self._literals = _joined(outside)
        metadata = [use for use in _METADATA.findall(code) if not use.startswith(".")]
        self.uses_metadata = bool(metadata)
        self._uses = len(_FIELDS.findall(code)) + len(metadata)
        self._collects = any(name in ("map", "filter") for name, _ in loops)
        # With metadata, loops count as if they used all of it and of the message.
        self._in_loops = None if metadata else _fields(" ".join(body for _, body in loops))
        self._in_maps = None if metadata else _fields(maps)

    def check(self, seen: Any, values: int) -> None:
        """``seen`` are the fields of the message that the expression uses, with the metadata if it uses that, and
        ``values`` those of the whole message if there are loops. Raises TooLargeError for a message with which it could
        take too much memory or time."""
        matching = self._joins * self._matched
        harmless = not self.loops and not self.takes_patterns and max(self._joins, self._uses) <= _FEW_COPIES
        if harmless and matching * limits.BODY_BYTES <= limits.MATCHING:
            return
        size = len(json.dumps(seen))
        if self.takes_patterns:
            self._check_patterns(seen, size)
        if not self.loops:
            if matching * size > limits.MATCHING:
                raise limits.TooLargeError(_TOO_LARGE)
            # Counting values takes longer than their size, with which there are two bytes for each at least.
            most = min(_MAX_HELD_VALUES // self._joins, _MAX_COPIED_VALUES // max(1, self._uses))
            if self._joins * size > _MAX_HELD_BYTES or (size // 2 > most < limits.count_values(seen, most)):
                raise limits.TooLargeError(_TOO_LARGE)
            return
        items = values + self._literals
        map_bytes, map_values = _size_of(self._in_maps, seen)
        loop_bytes, loop_values = _size_of(self._in_loops, seen)
        read = self._uses * items
        held_bytes = self._joins * (size + items * map_bytes)
        held_values = self._joins * (values + items * map_values)
        # These loops copy what they have collected with each item.
        times = items if self._collects else 1
        if (
            held_bytes > _MAX_HELD_BYTES
            or held_values > _MAX_HELD_VALUES
            or times * held_bytes + read * loop_bytes > _MAX_COPIED_BYTES
            or times * held_values + read * loop_values > _MAX_COPIED_VALUES
            or self._matched * held_bytes + _COMPILING * self._compiled * items > limits.MATCHING
        ):
            raise limits.TooLargeError(_TOO_LARGE)

    def _check_patterns(self, seen: Any, size: int) -> None:
        """Any text of the message or of the expression may be a regular expression, or a part of one."""
        if size > _MAX_PATTERN_BYTES:
            raise limits.TooLargeError("The message is too large to take regular expressions from it.")
        texts = [text for text in (*limits.texts(seen), *self._texts) if "{" in text]
        if self._is_joined and texts:
            raise limits.TooLargeError("A regular expression that is joined with + cannot have repetitions in braces.")
        for text in texts:
            if _COUNTED.search(text):
                check_pattern(text)
        # Without repetitions, a regular expression has as many steps as bytes.
        if self._matches * size * max(size, limits.PATTERN_SIZE if texts else 0) > limits.MATCHING:
            raise limits.TooLargeError(_TOO_LARGE)


_TOO_LARGE = "The message is too large for this expression."


def _value(literal: str) -> str:
    """The text that a literal of CEL stands for."""
    prefix = re.match("[bBrR]*", literal)
    assert prefix is not None
    quoted = literal[prefix.end() :]
    quotes = 3 if quoted[:3] in ('"""', "'''") and len(quoted) >= 6 else 1
    content = quoted[quotes:-quotes]
    return content if "r" in prefix[0].lower() else _ESCAPES.sub(_unescaped, content)


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    if len(code) == 1:
        return _CONTROLS.get(code, code)
    number = int(code[1:], 16) if code[0] in "xuU" else int(code, 8)
    return chr(number) if number <= sys.maxunicode else ""


def _fields(code: str) -> list[str] | None:
    names = _FIELDS.findall(code)
    return sorted(set(names)) if all(names) else None


def _seen(fields: list[str] | None, document: Any) -> Any:
    return document if fields is None else {field: document[field] for field in fields if field in document}


def _size_of(fields: list[str] | None, seen: Any) -> tuple[int, int]:
    """The bytes and the values of these fields."""
    if not fields and fields is not None:
        return 0, 0
    part = _seen(fields, seen)
    return len(json.dumps(part)), limits.count_values(part, _MAX_VALUES)


def _joined(code: str) -> int:
    return 1 + code.count("+") + code.count(",")


def _parts(code: str) -> tuple[str, list[tuple[str, str]], bool]:
    """The code outside of loops, the names of loops with the code in them, and whether loops are nested: the time of
    such an expression could not be bounded."""
    begins = {loop.end(): loop.group(1) for loop in _LOOPS.finditer(code)}
    outside, loops, nested = "", [], False
    name, begin, depth = "", 0, 0
    for at, character in enumerate(code, 1):
        if depth == 0 and at in begins:
            outside += code[begin:at]
            name, begin, depth = begins[at], at, 1
        elif depth:
            nested = nested or at in begins
            depth += (character == "(") - (character == ")")
            if depth == 0:
                loops.append((name, code[begin : at - 1]))
                begin = at
    return outside + code[begin:], loops, nested


def _check_numbers(seen: Any) -> None:
    """CEL's integers have 64 bits and its other numbers are doubles; the library would take larger ones for doubles, or
    for infinite. Raises ValueError."""
    rest = [seen]
    while rest:
        value = rest.pop()
        match value:
            case dict():
                rest += value.values()
            case list():
                rest += value
            case int() if not _INTEGERS.start <= value < _INTEGERS.stop:
                raise ValueError("an integer of the message is out of range, which is 64 bits")
            case Decimal() if value.adjusted() > _MOST_DIGITS:
                raise ValueError("a number of the message is out of range, which is that of doubles")


def _sentence(error: Exception) -> str:
    if isinstance(error, KeyError) and error.args:
        return f"there is no field {error.args[0]}."
    return f"{error}".rstrip(".") + "."


def _as_json(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            raise ValueError(f"the result is {value}, which JSON cannot represent")
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
