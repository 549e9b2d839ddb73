"""``${name}`` in names, texts and expressions, replaced before a statement is executed.

``${secret:name}`` is no variable: it stays in the statement, and is resolved where the value is used.
"""

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from backend.domain.connect_sql import expressions as e
from backend.domain.connect_sql.errors import StatementError
from backend.domain.connect_sql.plain import plain_value
from backend.domain.connect_sql.statements import Property, Statement

T = TypeVar("T", bound=Statement)
LONGEST = 1_000_000
"""Characters that all variables of a statement may come to."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")


def with_variables(statement: T, variables: Mapping[str, str]) -> T:
    """The statement with the variables' values. Raises StatementError when one is not defined, or they are too long."""
    length = 0

    def replaced(part: Any) -> Any:
        match part:
            case str() if type(part) is str:
                return _VARIABLE.sub(lambda match: value_of(match[1]), part)
            case e.Variable():
                return e.Literal(plain_value(value_of(part.name)))
            case tuple():
                return tuple(map(replaced, part))
            case Property() if isinstance(part.value, str) and (whole := _VARIABLE.fullmatch(part.value)):
                return replace(part, key=replaced(part.key), value=plain_value(value_of(whole[1])))
        if is_dataclass(part) and not isinstance(part, type):
            changed = {field.name: replaced(getattr(part, field.name)) for field in fields(part)}
            return replace(part, **changed)
        return part

    def value_of(name: str) -> str:
        nonlocal length
        if name not in variables:
            sentence = f"The variable {name} is not defined: DEFINE it before, or send it with the statements."
            raise StatementError(sentence, line=statement.line or 1, column=1)
        length += len(variables[name])
        if length > LONGEST:
            sentence = f"With its variables, the statement exceeds {LONGEST:,} characters."
            raise StatementError(sentence, line=statement.line or 1, column=1)
        return variables[name]

    result: T = replaced(statement)
    return result
