"""The functions of queries: what they take, what they give, and how Spark SQL writes them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backend.domain.connect_sql import expressions as e
from backend.domain.connect_sql import types as t

Types = Sequence[e.Type | None]
ResultType = Callable[[Types], e.Type | None]
"""Raises TypeError when the function does not take arguments of these types; None stands for NULL."""


@dataclass(frozen=True)
class Function:
    """``template`` has the arguments at ``{0}`` and so on, or all of them at ``{all}``."""

    template: str
    result: ResultType
    least: int
    most: int
    aggregates: bool = False


def _gives(type: e.Type, *takes: Callable[[e.Type | None], bool]) -> ResultType:
    def result(arguments: Types) -> e.Type:
        for argument, accepts in zip(arguments, takes, strict=False):
            if argument is not None and not accepts(argument):
                raise TypeError
        return type

    return result


def _is(*types: e.Type) -> Callable[[e.Type | None], bool]:
    return lambda type: type in types


def _same(arguments: Types) -> e.Type | None:
    type: e.Type | None = None
    for argument in arguments:
        type = t.common(type, argument)
    return type


def _first(accepts: Callable[[e.Type | None], bool] = lambda type: True) -> ResultType:
    def result(arguments: Types) -> e.Type | None:
        if arguments[0] is not None and not accepts(arguments[0]):
            raise TypeError
        return arguments[0]

    return result


def _sum(arguments: Types) -> e.Type:
    match arguments[0]:
        case e.DecimalType(precision=precision, scale=scale):
            return e.DecimalType(min(precision + 10, 38), scale)
        case t.INTEGER | t.BIGINT | t.DOUBLE as type:
            return type
    raise TypeError


def _array(arguments: Types) -> e.Type:
    if arguments[0] is None:
        raise TypeError
    return e.ArrayType(arguments[0])


def _element(arguments: Types) -> e.Type:
    match arguments[0]:
        case e.ArrayType(element=element):
            return element
    raise TypeError


def _part_of_map(pick: Callable[[e.MapType], e.Type]) -> ResultType:
    def result(arguments: Types) -> e.Type:
        if not isinstance(arguments[0], e.MapType):
            raise TypeError
        return e.ArrayType(pick(arguments[0]))

    return result


def _is_container(type: e.Type | None) -> bool:
    return isinstance(type, e.ArrayType | e.MapType)


def _is_array(type: e.Type | None) -> bool:
    return isinstance(type, e.ArrayType)


_text, _whole, _number = _is(t.VARCHAR), t.is_whole, t.is_numeric
_LATEST = "struct(ROWTIME, ROWPARTITION, ROWOFFSET)"
"""Orders the rows of a key by time."""

FUNCTIONS: dict[str, Function] = {
    # Of texts.
    "UCASE": Function("upper({0})", _gives(t.VARCHAR, _text), 1, 1),
    "LCASE": Function("lower({0})", _gives(t.VARCHAR, _text), 1, 1),
    "TRIM": Function("trim({0})", _gives(t.VARCHAR, _text), 1, 1),
    "LEN": Function("length({0})", _gives(t.INTEGER, _is(t.VARCHAR, t.BYTES)), 1, 1),
    "SUBSTRING": Function("substring({all})", _gives(t.VARCHAR, _text, _whole, _whole), 2, 3),
    "REPLACE": Function("replace({all})", _gives(t.VARCHAR, _text, _text, _text), 3, 3),
    "INSTR": Function("instr({all})", _gives(t.INTEGER, _text, _text), 2, 2),
    "LPAD": Function("lpad({all})", _gives(t.VARCHAR, _text, _whole, _text), 3, 3),
    "RPAD": Function("rpad({all})", _gives(t.VARCHAR, _text, _whole, _text), 3, 3),
    # NULL is left out, as the operator || does not.
    "CONCAT": Function("concat_ws('', {all})", _gives(t.VARCHAR, *[_text] * 20), 1, 20),
    "SPLIT": Function("split({0}, concat('\\\\Q', {1}, '\\\\E'))", _gives(e.ArrayType(t.VARCHAR), _text, _text), 2, 2),
    "REGEXP_EXTRACT": Function("regexp_extract({1}, {0}, 0)", _gives(t.VARCHAR, _text, _text), 2, 2),
    "EXTRACTJSONFIELD": Function("get_json_object({all})", _gives(t.VARCHAR, _text, _text), 2, 2),
    "TO_JSON_STRING": Function("to_json(struct({0} AS value))", _gives(t.VARCHAR), 1, 1),
    # Of numbers.
    "ABS": Function("abs({0})", _first(_number), 1, 1),
    "SIGN": Function("cast(sign({0}) AS INT)", _gives(t.INTEGER, _number), 1, 1),
    "CEIL": Function("ceil({0})", _first(_number), 1, 1),
    "FLOOR": Function("floor({0})", _first(_number), 1, 1),
    "ROUND": Function("round({all})", _first(_number), 1, 2),
    "SQRT": Function("sqrt({0})", _gives(t.DOUBLE, _number), 1, 1),
    "EXP": Function("exp({0})", _gives(t.DOUBLE, _number), 1, 1),
    "LN": Function("ln({0})", _gives(t.DOUBLE, _number), 1, 1),
    "POWER": Function("power({all})", _gives(t.DOUBLE, _number, _number), 2, 2),
    "GREATEST": Function("greatest({all})", _same, 2, 20),
    "LEAST": Function("least({all})", _same, 2, 20),
    # Of whatever may be missing.
    "COALESCE": Function("coalesce({all})", _same, 1, 20),
    "IFNULL": Function("coalesce({all})", _same, 2, 2),
    "NULLIF": Function("nullif({all})", _same, 2, 2),
    # Of times.
    "UNIX_TIMESTAMP": Function("unix_millis({0})", _gives(t.BIGINT, _is(t.TIMESTAMP)), 1, 1),
    "FROM_UNIXTIME": Function("timestamp_millis({0})", _gives(t.TIMESTAMP, _whole), 1, 1),
    "FORMAT_TIMESTAMP": Function("date_format({all})", _gives(t.VARCHAR, _is(t.TIMESTAMP), _text), 2, 2),
    "PARSE_TIMESTAMP": Function("to_timestamp({all})", _gives(t.TIMESTAMP, _text, _text), 2, 2),
    "FORMAT_DATE": Function("date_format({all})", _gives(t.VARCHAR, _is(t.DATE), _text), 2, 2),
    "PARSE_DATE": Function("to_date({all})", _gives(t.DATE, _text, _text), 2, 2),
    # Of arrays and maps.
    "ARRAY_LENGTH": Function("size({0})", _gives(t.INTEGER, _is_array), 1, 1),
    "ARRAY_CONTAINS": Function("array_contains({all})", _gives(t.BOOLEAN, _is_array), 2, 2),
    "ARRAY_DISTINCT": Function("array_distinct({0})", _first(_is_array), 1, 1),
    "ARRAY_JOIN": Function("array_join({all})", _gives(t.VARCHAR, _is_array, _text), 2, 2),
    "ARRAY_MAX": Function("array_max({0})", _element, 1, 1),
    "ARRAY_MIN": Function("array_min({0})", _element, 1, 1),
    "MAP_KEYS": Function("map_keys({0})", _part_of_map(lambda type: type.key), 1, 1),
    "MAP_VALUES": Function("map_values({0})", _part_of_map(lambda type: type.value), 1, 1),
    "CARDINALITY": Function("size({0})", _gives(t.INTEGER, _is_container), 1, 1),
    # Of all rows of a group.
    "COUNT": Function("count({0})", _gives(t.BIGINT), 1, 1, aggregates=True),
    "SUM": Function("sum({0})", _sum, 1, 1, aggregates=True),
    "AVG": Function("avg({0})", _gives(t.DOUBLE, _number), 1, 1, aggregates=True),
    "MIN": Function("min({0})", _first(), 1, 1, aggregates=True),
    "MAX": Function("max({0})", _first(), 1, 1, aggregates=True),
    "COLLECT_LIST": Function("collect_list({0})", _array, 1, 1, aggregates=True),
    "COLLECT_SET": Function("collect_set({0})", _array, 1, 1, aggregates=True),
    "LATEST_BY_OFFSET": Function(
        f"max_by({{0}}, CASE WHEN {{0}} IS NOT NULL THEN {_LATEST} END)", _first(), 1, 1, aggregates=True
    ),
    "EARLIEST_BY_OFFSET": Function(
        f"min_by({{0}}, CASE WHEN {{0}} IS NOT NULL THEN {_LATEST} END)", _first(), 1, 1, aggregates=True
    ),
}
"""By their names in upper case."""
