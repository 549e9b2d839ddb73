"""Expressions of queries and the types of columns, as immutable values."""

from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any, TypeAlias

DEEPEST = 100
"""Expressions that are nested more deeply are rejected, since working on them is recursive."""


class TooDeepError(ValueError):
    """An expression is nested too deeply."""


@dataclass(frozen=True)
class Expression:
    """Base class; an expression's parts are its fields. Raises TooDeepError."""

    def __post_init__(self) -> None:
        depth = 1 + max((_depth(getattr(self, field.name)) for field in fields(self)), default=0)
        if depth > DEEPEST:
            raise TooDeepError
        object.__setattr__(self, "_depth", depth)


def _depth(part: Any) -> int:
    if isinstance(part, Expression):
        return int(getattr(part, "_depth"))  # noqa: B009
    return max(map(_depth, part), default=0) if isinstance(part, tuple) else 0


@dataclass(frozen=True)
class Literal(Expression):
    """A constant: a text, a number, TRUE, FALSE, or None for NULL."""

    value: str | int | Decimal | float | bool | None

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and TRUE are equal in Python, and different in SQL.
        return isinstance(other, Literal) and (type(self.value), self.value) == (type(other.value), other.value)

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True)
class Variable(Expression):
    """``${name}`` outside of quotes."""

    name: str


@dataclass(frozen=True)
class Column(Expression):
    """A column, with the name or alias of its stream or table if one is given."""

    name: str
    source: str | None = None


@dataclass(frozen=True)
class Field(Expression):
    """``struct -> field``."""

    struct: Expression
    name: str


@dataclass(frozen=True)
class Item(Expression):
    """``array[index]`` or ``map[key]``."""

    container: Expression
    key: Expression


@dataclass(frozen=True)
class Call(Expression):
    """A function's call; ``every_row`` is ``COUNT(*)``."""

    function: str
    arguments: tuple[Expression, ...] = ()
    every_row: bool = False


@dataclass(frozen=True)
class Operation(Expression):
    """``left operator right`` for ``+ - * / % ||`` and the comparisons ``= <> < <= > >=``."""

    left: Expression
    operator: str
    right: Expression


@dataclass(frozen=True)
class Minus(Expression):
    """The negative number."""

    operand: Expression


@dataclass(frozen=True)
class AnyOf(Expression):
    """``OR``."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class AllOf(Expression):
    """``AND``."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True)
class Not(Expression):
    """``NOT``."""

    operand: Expression


@dataclass(frozen=True)
class IsNull(Expression):
    """``IS NULL``, or with ``negated`` ``IS NOT NULL``."""

    operand: Expression
    negated: bool = False


@dataclass(frozen=True)
class Between(Expression):
    """``BETWEEN low AND high``, both included."""

    operand: Expression
    low: Expression
    high: Expression
    negated: bool = False


@dataclass(frozen=True)
class InList(Expression):
    """``IN (…)``."""

    operand: Expression
    items: tuple[Expression, ...]
    negated: bool = False


@dataclass(frozen=True)
class Like(Expression):
    """``LIKE pattern``."""

    operand: Expression
    pattern: Expression
    negated: bool = False


@dataclass(frozen=True)
class When(Expression):
    """One branch of a CASE."""

    condition: Expression
    result: Expression


@dataclass(frozen=True)
class Case(Expression):
    """``CASE [operand] WHEN … THEN … [ELSE otherwise] END``."""

    operand: Expression | None
    branches: tuple[When, ...]
    otherwise: Expression | None = None


@dataclass(frozen=True)
class PrimitiveType:
    """``name`` is VARCHAR, INTEGER, BIGINT, DOUBLE, BOOLEAN, DATE, TIME, TIMESTAMP or BYTES."""

    name: str


@dataclass(frozen=True)
class DecimalType:
    """A decimal number with ``precision`` digits, of which ``scale`` follow the point."""

    precision: int
    scale: int


@dataclass(frozen=True)
class ArrayType:
    """Elements of one type."""

    element: "Type"


@dataclass(frozen=True)
class MapType:
    """Values of one type, by keys of one type."""

    key: "Type"
    value: "Type"


@dataclass(frozen=True)
class StructType:
    """Named fields, each with its type."""

    fields: tuple[tuple[str, "Type"], ...]


Type: TypeAlias = PrimitiveType | DecimalType | ArrayType | MapType | StructType


@dataclass(frozen=True)
class Cast(Expression):
    """``CAST(operand AS type)``."""

    operand: Expression
    type: Type


@dataclass(frozen=True)
class Struct(Expression):
    """``STRUCT(name := expression, …)``."""

    members: tuple[tuple[str, Expression], ...]
