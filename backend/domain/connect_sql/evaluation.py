"""Evaluates expressions on rows in Python, with the results that Spark SQL gives for them, so that a query which only
reads is answered at once, without Spark. Whatever is not known here is left to Spark (NotEvaluatedError)."""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import re2

from backend.domain import limits
from backend.domain.connect_sql import expressions as e
from backend.domain.connect_sql import types as t
from backend.domain.connect_sql.translation import Scope, Translator, member_named
from backend.domain.numbers import as_written
from backend.domain.patterns import check_pattern, pattern_size

Row = Mapping[str, Any]
"""The values of one stream's or table's columns."""
Evaluated = Callable[[Row], Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT = Context(prec=100, rounding=ROUND_HALF_UP)
_BITS = {t.INTEGER: 32, t.BIGINT: 64}
_WHOLE = re.compile(r"\s*([+-]?\d+)(?:\.\d*)?\s*")
_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*")
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class NotEvaluatedError(Exception):
    """Only Spark evaluates this."""


def fitted(value: Any, type: e.Type | None) -> Any:
    """A number as a column of this type holds it: whole numbers are cut to their bits, decimals rounded, and NULL where
    they do not fit. Other values stay."""
    if value is None:
        return None
    if type in _BITS:
        half = 1 << (_BITS[type] - 1)
        return (int(value) + half) % (2 * half) - half
    if type == t.DOUBLE:
        return float(value)
    if isinstance(type, e.DecimalType):
        try:
            rounded = as_written(value).quantize(Decimal(1).scaleb(-type.scale), context=_EXACT)
        except InvalidOperation:
            return None
        return rounded if rounded.adjusted() < type.precision - type.scale else None
    return value


@dataclass
class Evaluator:
    """Makes functions of expressions that were resolved in the scope, which has one stream or table. Its methods raise
    QueryError, and NotEvaluatedError."""

    scope: Scope

    def condition(self, node: e.Expression) -> Evaluated:
        """The expression, which has to be true or false."""
        Translator(self.scope).condition(node)
        return self.evaluated(node)

    def evaluated(self, node: e.Expression) -> Evaluated:
        type = self._type(node)
        if type is None:  # it is NULL whatever the row
            return lambda row: None
        match node:
            case e.Literal(value=value):
                constant = fitted(value, type)
                return lambda row: constant
            case e.Column(name=name):
                return operator.itemgetter(name)
            case e.Operation(left=left, operator=sign, right=right) if sign in _COMPARISONS:
                return self._compared(_COMPARISONS[sign], left, right)
            case e.Operation(left=left, operator=sign, right=right):
                return self._strict(_operation(sign, type), left, right)
            case e.Minus(operand=operand):
                return self._strict(lambda value: fitted(-value, type), operand)
            case e.Call():
                return self._call(node, type)
            case e.Cast(operand=operand, type=target):
                return self._strict(_cast(self._type(operand), target), operand)
            case e.Field(struct=struct, name=name):
                struct_type = self._type(struct)
                assert isinstance(struct_type, e.StructType)
                member = member_named(name, [one for one, _ in struct_type.fields])
                return self._strict(lambda value: value.get(member), struct)
            case e.Item(container=container, key=key):
                return self._strict(_item, container, key)
            case e.Struct(members=members):
                parts = [(name, self.evaluated(member)) for name, member in members]
                return lambda row: {name: part(row) for name, part in parts}
            case e.Case():
                return self._case(node, type)
        return self._predicate(node)

    def _type(self, node: e.Expression) -> e.Type | None:
        return Translator(self.scope).translate(node).type

    def _strict(self, function: Callable[..., Any], *operands: e.Expression) -> Evaluated:
        """NULL if an operand is NULL, or it cannot be computed."""
        parts = [self.evaluated(operand) for operand in operands]

        def evaluate(row: Row) -> Any:
            values = [part(row) for part in parts]
            try:
                return None if None in values else function(*values)
            except (ArithmeticError, ValueError):
                return None

        return evaluate

    def _compared(self, compare: Callable[[Any, Any], bool], left: e.Expression, right: e.Expression) -> Evaluated:
        type = t.common(self._type(left), self._type(right))
        if type != t.DOUBLE:
            return self._strict(compare, left, right)
        return self._strict(lambda one, other: compare(float(one), float(other)), left, right)

    def _predicate(self, node: e.Expression) -> Evaluated:
        match node:
            case e.AllOf(operands=operands):
                return _connected([self.evaluated(one) for one in operands], False)
            case e.AnyOf(operands=operands):
                return _connected([self.evaluated(one) for one in operands], True)
            case e.Not(operand=operand):
                return self._strict(operator.not_, operand)
            case e.IsNull(operand=operand, negated=negated):
                inner = self.evaluated(operand)
                return lambda row: (inner(row) is None) is not negated
            case e.Between(operand=operand, low=low, high=high, negated=negated):
                within = e.AllOf((e.Operation(operand, ">=", low), e.Operation(operand, "<=", high)))
                return self.evaluated(e.Not(within) if negated else within)
            case e.InList(operand=operand, items=items, negated=negated):
                among = e.AnyOf(tuple(e.Operation(operand, "=", item) for item in items))
                return self.evaluated(e.Not(among) if negated else among)
            case e.Like(operand=operand, pattern=pattern, negated=negated):
                return self._strict(lambda value, like: _like(value, like) is not negated, operand, pattern)
        raise NotEvaluatedError

    def _case(self, node: e.Case, type: e.Type | None) -> Evaluated:
        branches = []
        for branch in node.branches:
            when = branch.condition if node.operand is None else e.Operation(node.operand, "=", branch.condition)
            branches.append((self.evaluated(when), self.evaluated(branch.result)))
        otherwise = self.evaluated(node.otherwise) if node.otherwise is not None else None

        def evaluate(row: Row) -> Any:
            result = next((result for when, result in branches if when(row)), otherwise)
            return fitted(result(row), type) if result is not None else None

        return evaluate

    def _call(self, node: e.Call, type: e.Type | None) -> Evaluated:
        name = node.function.upper()
        if name in _STRICT:
            function = _STRICT[name]
            return self._strict(lambda *values: fitted(function(*values), type), *node.arguments)
        if name not in _LENIENT:
            raise NotEvaluatedError
        parts, lenient = [self.evaluated(argument) for argument in node.arguments], _LENIENT[name]

        def evaluate(row: Row) -> Any:
            try:
                return fitted(lenient([part(row) for part in parts]), type)
            except ValueError:
                return None

        return evaluate


def _connected(parts: list[Evaluated], decisive: bool) -> Evaluated:
    """AND, which one FALSE decides, and OR, which one TRUE decides; otherwise NULL if a part is NULL."""

    def evaluate(row: Row) -> bool | None:
        values = [part(row) for part in parts]
        if decisive in values:
            return decisive
        return None if None in values else not decisive

    return evaluate


def _operation(sign: str, type: e.Type | None) -> Callable[[Any, Any], Any]:
    if type == t.VARCHAR:
        return lambda left, right: _joined([left, right])
    functions: dict[str, Callable[[Any, Any], Any]] = {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "/": _divided,
        "%": _remainder,
    }
    function = functions[sign]
    if type == t.DOUBLE:
        return lambda left, right: function(float(left), float(right))
    if isinstance(type, e.DecimalType):
        return lambda left, right: fitted(function(Decimal(left), Decimal(right)), type)
    return lambda left, right: fitted(function(left, right), type)


def _divided(left: Any, right: Any) -> Any:
    if not right:
        return None
    if isinstance(left, int):
        return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return _EXACT.divide(left, right) if isinstance(left, Decimal) else left / right


def _remainder(left: Any, right: Any) -> Any:
    """With the sign of the dividend."""
    if not right:
        return None
    if isinstance(left, float):
        return math.fmod(left, right)
    return abs(left) % abs(right) * (-1 if left < 0 else 1)


def _like(value: str, pattern: str) -> bool:
    """Raises ValueError for a pattern with which it would take too long."""
    expression = _expression(pattern)
    check_pattern(expression)
    if pattern_size(expression) * len(value) > limits.MATCHING:
        raise ValueError("the text is too long for this pattern of LIKE")
    return re2.fullmatch(expression, value) is not None


def _expression(like: str) -> str:
    wild = {"%": ".*", "_": "."}
    parts = re.findall(r"\\.|.", like, re.DOTALL)
    return "(?s:" + "".join(wild.get(part) or re2.escape(part[-1]) for part in parts) + ")"


def _item(container: Any, key: Any) -> Any:
    """Of an array by its place, from 1 on or back from -1, or of a map by its key."""
    if isinstance(container, dict):
        return container.get(key)
    place = key - 1 if key > 0 else key
    return container[place] if key and -len(container) <= place < len(container) else None


# -- casts ------------------------------------------------------------------------------


def _cast(source: e.Type | None, target: e.Type) -> Callable[[Any], Any]:
    if source in (target, None):
        return lambda value: value
    if target == t.VARCHAR:
        return _cast_to_text(source)
    if target == t.BOOLEAN and source == t.VARCHAR:
        return lambda text: True if text.strip().lower() in _TRUE else False if text.strip().lower() in _FALSE else None
    if target in _BITS and source == t.VARCHAR:
        half = 1 << (_BITS[target] - 1)
        return lambda text: (
            number if (match := _WHOLE.fullmatch(text)) and -half <= (number := int(match[1])) < half else None
        )
    if target == t.DOUBLE and source == t.VARCHAR:
        return lambda text: float(text) if _NUMBER.fullmatch(text) else None
    if isinstance(target, e.DecimalType) and source == t.VARCHAR:
        return lambda text: fitted(Decimal(text.strip()), target) if _NUMBER.fullmatch(text) else None
    if t.is_numeric(target) and t.is_numeric(source) and not (source == t.DOUBLE and target in _BITS):
        return lambda number: fitted(number, target)
    raise NotEvaluatedError


def _cast_to_text(source: e.Type | None) -> Callable[[Any], str]:
    if t.is_whole(source) or source == t.DATE:
        return str
    if source == t.BOOLEAN:
        return lambda value: str(value).lower()
    if isinstance(source, e.DecimalType):
        return lambda value: f"{value:f}"
    raise NotEvaluatedError


# -- functions ------------------------------------------------------------------------------


def _substring(text: str, start: int, length: int | None = None) -> str:
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    end = len(text) if length is None else first + length
    return text[max(first, 0) : max(end, 0)]


def _to_whole(function: Callable[[Any], int], value: Any) -> Any:
    return value if isinstance(value, float) and not math.isfinite(value) else function(value)


def _rounded(value: Any, digits: int = 0) -> Any:
    """Half away from zero."""
    if isinstance(value, float) and not math.isfinite(value):
        return value
    exact = as_written(value)
    if -int(exact.as_tuple().exponent) <= digits:
        return value
    return type(value)(exact.quantize(Decimal(1).scaleb(-digits), context=_EXACT))


def _joined(texts: list[str]) -> str:
    """Raises ValueError when the text would be longer than a message may be."""
    if sum(map(len, texts)) > limits.BODY_BYTES:
        raise ValueError
    return "".join(texts)


def _distinct(values: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for value in values:
        if value not in kept:
            kept.append(value)
    return kept


def _present(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]


_STRICT: dict[str, Callable[..., Any]] = {
    "UCASE": str.upper,
    "LCASE": str.lower,
    "TRIM": lambda text: text.strip(" "),
    "LEN": len,
    "SUBSTRING": _substring,
    "INSTR": lambda text, part: text.find(part) + 1,
    "ABS": abs,
    "SIGN": lambda number: (number > 0) - (number < 0),
    "CEIL": lambda number: _to_whole(math.ceil, number),
    "FLOOR": lambda number: _to_whole(math.floor, number),
    "ROUND": _rounded,
    "SQRT": lambda number: math.sqrt(number) if number >= 0 else math.nan,
    "LN": lambda number: math.log(number) if number > 0 else None,
    "UNIX_TIMESTAMP": lambda time: (time - EPOCH) // timedelta(milliseconds=1),
    "FROM_UNIXTIME": lambda milliseconds: EPOCH + timedelta(milliseconds=milliseconds),
    "ARRAY_LENGTH": len,
    "CARDINALITY": len,
    "ARRAY_DISTINCT": _distinct,
    "ARRAY_MAX": lambda values: max(_present(values), default=None),
    "ARRAY_MIN": lambda values: min(_present(values), default=None),
    "MAP_KEYS": list,
    "MAP_VALUES": lambda values: list(values.values()),
}
"""Functions that give NULL if an argument is NULL."""

_LENIENT: dict[str, Callable[[list[Any]], Any]] = {
    "CONCAT": lambda values: _joined(_present(values)),
    "COALESCE": lambda values: next(iter(_present(values)), None),
    "IFNULL": lambda values: next(iter(_present(values)), None),
    "NULLIF": lambda values: None if values[0] == values[1] else values[0],
    "GREATEST": lambda values: max(_present(values), default=None),
    "LEAST": lambda values: min(_present(values), default=None),
}
"""Functions that take NULL."""


def days(value: int) -> date:
    """The date so many days after 1970 began. Raises OverflowError."""
    return EPOCH.date() + timedelta(days=value)


def milliseconds(value: int) -> datetime:
    """The time so many milliseconds after 1970 began. Raises OverflowError."""
    return EPOCH + timedelta(milliseconds=value)
