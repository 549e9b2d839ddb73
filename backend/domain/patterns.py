"""How much work a regular expression is, whichever engine matches it.

All engines here take time in proportion to a text's length times the expression's size in the worst case, and a
repetition such as ``(a|b){1000}`` makes a large expression of a few characters.
"""

import re
from functools import lru_cache

import re2

from backend.domain import limits

_MAX_MEMORY = 1 << 27
_MOST = 1_000_000
"""The size of what does not fit into this memory."""
_TOO_LARGE = "pattern too large"
_CODE_POINT = re.compile(r"\\u(?:([0-9A-Fa-f]{4})|\{([0-9A-Fa-f]+)\})")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_UNICODE_CLASSES = {"w": r"\pL", "W": r"\PL", "d": r"\p{Nd}", "D": r"\P{Nd}", "S": r"\PZ"}
_REPETITION = re.compile(r"\\.|\{\s*(\d+)\s*(?:,\s*(?P<most>\d*)\s*)?\}", re.DOTALL)
_CAPS = (10**9, 1000, 10)
"""RE2 takes repetitions of 1,000, also of those in one another."""


def _options(encoding: re2.Options.Encoding) -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MAX_MEMORY
    options.encoding = encoding
    return options


# Of bytes instead of characters: otherwise one . counts as much as a dozen letters, for no more work.
_BYTES = _options(re2.Options.Encoding.LATIN1)
_CHARACTERS = _options(re2.Options.Encoding.UTF8)


@lru_cache(1024)
def pattern_size(pattern: str) -> int:
    """The size of the expression's program in RE2. Of what only another engine knows, a bound."""
    return _program_size(_as_re2(pattern), _BYTES)


@lru_cache(1024)
def compiled_size(pattern: str) -> int:
    """How much an engine compiles whose classes such as ``\\w`` are those of Unicode, with hundreds of steps each. It
    takes some 200 nanoseconds for a step."""
    written = _ESCAPE.sub(lambda found: _UNICODE_CLASSES.get(found[1], found[0]), _as_re2(pattern))
    return _program_size(written, _CHARACTERS)


def check_pattern(pattern: str) -> None:
    """Raises TooLargeError."""
    if pattern_size(pattern) > limits.PATTERN_SIZE:
        raise limits.TooLargeError(
            f"The regular expression has more than {limits.PATTERN_SIZE:,} steps, where {{1000}} repeats a step as "
            "often. Lower the repetitions, or check the length in another way."
        )


def _program_size(pattern: str, options: re2.Options) -> int:
    for most in _CAPS:
        capped, factor = _capped(pattern, most)
        try:
            written = capped.encode(errors="replace")
            program = re2.compile(written if options is _BYTES else written.decode(), options)
        except re2.error as error:
            if _TOO_LARGE in str(error):
                return _MOST
        else:
            return min(_MOST, int(program.programsize) * factor)
    # As if each repetition repeated everything.
    capped, factor = _capped(pattern, 1)
    return min(_MOST, len(capped) * factor)


def _capped(pattern: str, most: int) -> tuple[str, int]:
    """The expression with no more repetitions than these, and how often its size may be that of the original."""
    factor = 1

    def cap(found: re.Match[str]) -> str:
        nonlocal factor
        numbers = [_number(digits) for digits in found.groups("")]
        if found[0].startswith("\\") or max(numbers) <= most:
            return found[0]
        factor = min(_MOST, factor * -(-max(numbers) // most))
        least = f"{min(numbers[0], most)}," if found["most"] is not None else ""
        return f"{{{least}{most}}}"

    return _REPETITION.sub(cap, pattern), factor


def _number(digits: str) -> int:
    # Only few digits are converted, which takes long for many of them.
    significant = digits.lstrip("0")
    return _MOST if len(significant) >= len(str(_MOST)) else int(significant or 0)


def _as_re2(pattern: str) -> str:
    """JSON Schema writes code points as ECMAScript does."""
    return _CODE_POINT.sub(lambda found: rf"\x{{{found[1] or found[2]}}}", pattern)
