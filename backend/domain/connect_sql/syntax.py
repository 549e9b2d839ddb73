"""The syntax of the language, and errors that say where, and what was expected. Its library takes long to import."""

import re
from functools import lru_cache

from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken, VisitError

from backend.domain.connect_sql.builder import Builder
from backend.domain.connect_sql.errors import StatementError
from backend.domain.connect_sql.expressions import TooDeepError
from backend.domain.connect_sql.keywords import KEPT_WORDS, WORD, grammar, keywords
from backend.domain.connect_sql.statements import Statement

_MOST_EXPECTED = 8

_NAMES = {
    "NAME": "a name",
    "BARE_NAME": "a name",
    "BACK_QUOTED": "a name",
    "DOUBLE_QUOTED": "a name",
    "BARE_VALUE": "a value",
    "STRING": "a text in single quotes",
    "NUMBER": "a number",
    "INTEGER": "a whole number",
    "VARIABLE": "a variable",
    "COMPARISON": "a comparison",
    "EQUALS": "'='",
    "PRIMITIVE": "a type",
    "UNIT": "a unit of time",
    "ELLIPSIS": "'...'",
    "$END": "the end",
}
_TYPES = {"PRIMITIVE", "_ARRAY", "_MAP", "_STRUCT", "_DECIMAL"}
_OPERATORS = {
    "PLUS",
    "MINUS",
    "CONCAT",
    "STAR",
    "SLASH",
    "PERCENT",
    "COMPARISON",
    "EQUALS",
    "_IS",
    "_IN",
    "_LIKE",
    "_BETWEEN",
}
_OPERATORS |= {"_AND", "_OR", "NOT", "_ARROW", "LSQB", "DOT"}
_EXPRESSION = {"_CASE", "_CAST", "_STRUCT", "NAME", "STRING", "NUMBER", "INTEGER", "TRUE", "FALSE", "NULL", "MINUS"}
_EXPRESSION |= {"NOT", "VARIABLE", "LPAR", "BACK_QUOTED", "DOUBLE_QUOTED"}


def parsed(text: str) -> list[Statement]:
    """The statements of the text. Raises StatementError."""
    try:
        statements: list[Statement] = Builder().transform(_parser().parse(text))
    except UnexpectedInput as error:
        raise _described(error, text) from None
    except VisitError as error:
        if isinstance(error.orig_exc, StatementError):
            raise error.orig_exc from None
        if not isinstance(error.orig_exc, TooDeepError | RecursionError):
            raise
        raise _too_deep() from None
    except RecursionError:
        raise _too_deep() from None
    return statements


def _too_deep() -> StatementError:
    return StatementError("An expression or a type is nested too deeply.", line=1, column=1)


@lru_cache
def _parser() -> Lark:
    text, words = grammar(), set(WORD.findall(grammar()))
    # A keyword is a whole word, and wins over a name, except one like "if-then" or "connector.class".
    whole = r".2: /{}(?!\w|[.-][a-z_])/i"
    terminals = [f"_{word}{whole.format(word)}" for word in words]
    terminals += [f"{word}{whole.format(word)}" for word in KEPT_WORDS]
    source = WORD.sub(r"_\1", text) + "\n" + "\n".join(terminals) + "\n"
    return Lark(
        source,
        parser="lalr",
        lexer="contextual",
        propagate_positions=True,
    )


def _described(error: UnexpectedInput, text: str) -> StatementError:
    expected = _expected(error)
    if (isinstance(error, UnexpectedToken) and error.token.type == "$END") or isinstance(error, UnexpectedEOF):
        line, column = _end_of(text)
        what = "The text ends too early"
    else:
        line, column = error.line, error.column
        what = _unexpected(text, line, column)
    listed = f": expected {_either(expected)}" if expected else ""
    return StatementError(f"{what}{listed}.", line=line, column=column, expected=tuple(expected))


def _unexpected(text: str, line: int, column: int) -> str:
    rest = text.split("\n")[line - 1][column - 1 :]
    if rest[:1] in ("'", '"', "`"):
        quotes = "".join(text.split("\n", line - 1)[-1])[column - 1 :]
        if quotes.count(rest[0]) % 2:
            return "The quotation mark that begins here has no end"
        return "A text in quotes is not expected here"
    if word := re.match(r"\w+", rest):
        known = word[0].upper()
        if known in keywords():
            return f"{known} is not expected here"
        return "A number is not expected here" if word[0].isdigit() else "A name is not expected here"
    return f"'{rest[:1]}' is not expected here" if rest[:1].isprintable() else "This is not expected here"


def _expected(error: UnexpectedInput) -> list[str]:
    names: set[str] = set()
    if isinstance(error, UnexpectedToken):
        names = set(error.accepts or error.expected or ())
    elif isinstance(error, UnexpectedCharacters):
        names = set(error.allowed or ())
    return _words(names)


def _words(names: set[str]) -> list[str]:
    words: set[str] = set()
    for group, word in ((_EXPRESSION, "an expression"), (_TYPES, "a type"), (_OPERATORS, "an operator")):
        if len(group & names) >= min(len(group), 5):
            words.add(word)
            names = names - group
    words |= {_NAMES.get(name) or _symbol(name) for name in names}
    ordered = sorted(words, key=lambda word: (not word.startswith("a"), word))
    return ordered[:_MOST_EXPECTED]


def _symbol(name: str) -> str:
    if name.removeprefix("_").isalpha() and name.removeprefix("_") in keywords():
        return name.removeprefix("_")
    terminal = _parser().get_terminal(name)
    return f"'{terminal.pattern.value}'"


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _end_of(text: str) -> tuple[int, int]:
    lines = text.rstrip().split("\n")
    return len(lines), len(lines[-1]) + 1
