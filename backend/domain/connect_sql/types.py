"""The types of columns, as Spark has them, and what types operations have."""

from backend.domain.connect_sql import expressions as e

VARCHAR = e.PrimitiveType("VARCHAR")
INTEGER = e.PrimitiveType("INTEGER")
BIGINT = e.PrimitiveType("BIGINT")
DOUBLE = e.PrimitiveType("DOUBLE")
BOOLEAN = e.PrimitiveType("BOOLEAN")
DATE = e.PrimitiveType("DATE")
TIMESTAMP = e.PrimitiveType("TIMESTAMP")
BYTES = e.PrimitiveType("BYTES")

_MOST_DIGITS = 38
_SPARK = {
    VARCHAR: "STRING",
    INTEGER: "INT",
    BIGINT: "BIGINT",
    DOUBLE: "DOUBLE",
    BOOLEAN: "BOOLEAN",
    DATE: "DATE",
    TIMESTAMP: "TIMESTAMP",
    BYTES: "BINARY",
    e.PrimitiveType("TIME"): "STRING",
}
_WHOLE = {INTEGER: 10, BIGINT: 19}
"""The types of whole numbers, with their digits."""


def quoted_name(name: str) -> str:
    """A name as Spark SQL quotes it."""
    return "`" + name.replace("`", "``") + "`"


def spark_type(type: e.Type) -> str:
    """The type in Spark SQL."""
    match type:
        case e.PrimitiveType():
            return _SPARK[type]
        case e.DecimalType(precision=precision, scale=scale):
            return f"DECIMAL({precision}, {scale})"
        case e.ArrayType(element=element):
            return f"ARRAY<{spark_type(element)}>"
        case e.MapType(key=key, value=value):
            return f"MAP<{spark_type(key)}, {spark_type(value)}>"
        case e.StructType(fields=fields):
            return f"STRUCT<{', '.join(f'{quoted_name(name)}: {spark_type(of)}' for name, of in fields)}>"


def is_numeric(type: e.Type | None) -> bool:
    return type in (INTEGER, BIGINT, DOUBLE) or isinstance(type, e.DecimalType)


def is_whole(type: e.Type | None) -> bool:
    return type in _WHOLE


def common(left: e.Type | None, right: e.Type | None) -> e.Type | None:
    """The type that values of both can be given without loss; None stands for NULL, which fits every type. Raises
    TypeError."""
    if left == right or right is None:
        return left
    if left is None:
        return right
    if not (is_numeric(left) and is_numeric(right)):
        raise TypeError
    if DOUBLE in (left, right):
        return DOUBLE
    if is_whole(left) and is_whole(right):
        return BIGINT
    one, other = decimal_of(left), decimal_of(right)
    scale = max(one.scale, other.scale)
    digits = max(one.precision - one.scale, other.precision - other.scale)
    return e.DecimalType(min(digits + scale, _MOST_DIGITS), scale)


def arithmetic(operator: str, left: e.Type, right: e.Type) -> e.Type:
    """The type of ``+ - * / %``. Raises TypeError."""
    result = common(left, right)
    if not isinstance(result, e.DecimalType):
        if not is_numeric(result):
            raise TypeError
        assert result is not None
        return result
    one, other = decimal_of(left), decimal_of(right)
    digits = max(one.precision - one.scale, other.precision - other.scale)
    match operator:
        case "+" | "-":
            scale = max(one.scale, other.scale)
            precision = digits + scale + 1
        case "*":
            scale, precision = one.scale + other.scale, one.precision + other.precision + 1
        case "/":
            scale = max(6, one.scale + other.precision + 1)
            precision = one.precision - one.scale + other.scale + scale
        case _:
            scale = max(one.scale, other.scale)
            precision = min(one.precision - one.scale, other.precision - other.scale) + scale
    return e.DecimalType(max(1, min(precision, _MOST_DIGITS)), min(scale, _MOST_DIGITS))


def decimal_of(type: e.Type) -> e.DecimalType:
    """The decimal type that has every value of a type of whole numbers, or the type itself."""
    return type if isinstance(type, e.DecimalType) else e.DecimalType(_WHOLE[type], 0)  # type: ignore[index]
