"""Regular expressions are only as large as a message can be matched with in a short time, wherever they are written."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from backend.domain import json, limits
from backend.domain.connect_sql.evaluation import _like
from backend.domain.filters.conditions import Regex
from backend.domain.patterns import check_pattern, compiled_size, pattern_size
from backend.domain.reasons import Reason
from backend.domain.transforms.base import Transform, TransformError
from backend.domain.transforms.chain import Chain
from backend.domain.transforms.expression import Expression
from backend.domain.transforms.validate import Validate

SECONDS = 20
"""Of the processor. What is not bounded takes minutes, what is some seconds."""
TEXT = "".join(random.Random(1).choices("ab", k=1024 * 1024))
HUGE = ["([a-z]{1,900}){1,9}" * 3, "(?:a{1000}){1000}", "a{1,30000}", r"\p{Alphabetic}{1,9000}", "x" * 20_001]
ORDINARY = [
    r"^[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}$",
    "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
    r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})$",
    r"^((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)$",
    ".{0,200}",
    "^.{1,1000}$",
    r"^(.|\n){0,255}$",
    r"^\p{L}[\p{L}_-]{0,9}$",
    "^(?i:" + "|".join(f"colour{number}" for number in range(40)) + ")$",
]
"""Of at most 500 characters, as filters take them."""


@contextmanager
def within_seconds() -> Iterator[None]:
    begin = time.process_time()
    yield
    assert time.process_time() - begin < SECONDS


def matches(pattern: str, text: str = "message.a") -> Expression:
    return Expression(expression=f"{text}.matches(r'{pattern}')", to="r")


PLACES: dict[str, Callable[[str], Any]] = {
    "expression": matches,
    "pattern": lambda pattern: Validate(json_schema={"properties": {"a": {"pattern": pattern}}}),
    "patternProperties": lambda pattern: Validate(json_schema={"patternProperties": {pattern: True}}),
    "filter": lambda pattern: Regex(field="a", pattern=pattern),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("pattern", ORDINARY)
def test_neighbours_4_ordinary_regular_expressions_are_taken(place: str, pattern: str) -> None:
    PLACES[place](pattern)


def test_neighbours_4_many_alternatives_are_taken() -> None:
    pattern = "^(" + "|".join(f"alternative {chr(97 + number % 26)} {number}" for number in range(90)) + ")$"
    for place in ("expression", "pattern", "patternProperties"):
        PLACES[place](pattern)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("pattern", HUGE, ids=range(len(HUGE)))
def test_neighbours_4_huge_regular_expressions_are_refused(place: str, pattern: str) -> None:
    with within_seconds(), pytest.raises(ValidationError) as caught:
        PLACES[place](pattern)
    assert len(caught.value.errors()) == 1


@pytest.mark.parametrize("place", ["expression", "pattern", "patternProperties"])
def test_neighbours_4_what_is_refused_says_what_to_do(place: str) -> None:
    with pytest.raises(ValidationError, match=r"has more than 20,000 steps, where \{1000\} repeats .* Lower the rep"):
        PLACES[place]("([a-z]{1,900}){1,1}" * 14)


@given(st.text(max_size=50) | st.text("ab(){}[]?*+|.,0123456789\\wdpLux", max_size=30))
def test_neighbours_4_any_text_has_a_size(pattern: str) -> None:
    with within_seconds():
        assert 0 < pattern_size(pattern) <= 1_000_000
        assert 0 < compiled_size(pattern) <= 1_000_000


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(["a", "[ab]", "."]))
def test_neighbours_4_repetitions_count_whether_re2_takes_them_or_not(one: int, other: int, atom: str) -> None:
    assert pattern_size(f"(?:{atom}{{{one}}}){{{other}}}") >= one * other
    assert pattern_size(f"(?:{atom}{{{one * 50}}}){{{other}}}") >= 50 * one * other
    assert pattern_size(f"{atom}{{1,{one * 1000}}}") >= 1000 * one


def test_neighbours_4_what_does_not_repeat_is_no_repetition() -> None:
    for pattern in (r"\x{41}\u{42}\u0043\{1000,2000}", r"a\{3000}", "[{]9000}"):
        check_pattern(pattern)


def dead_letter(step: Transform, document: Any) -> str:
    with within_seconds(), pytest.raises(TransformError) as caught:
        Chain([step]).run(json.dumps(document))
    assert caught.value.reason == Reason.TOO_LARGE
    return str(caught.value)


def test_neighbours_4_a_large_text_has_only_smaller_regular_expressions() -> None:
    large, small = "a[ab]{900}[ab]{900}[ab]{900}[ab]{900}c", "a[ab]{300}c"
    schema = Validate(json_schema={"properties": {"a": {"pattern": large}}}, invalid="flag")
    assert "texts of more than 5" in dead_letter(schema, {"a": TEXT})
    assert "too large for this expression" in dead_letter(matches(large), {"a": TEXT})
    with within_seconds():
        Chain([schema]).run(json.dumps({"a": TEXT[:10_000]}))
        Chain([matches(large)]).run(json.dumps({"a": TEXT[:10_000]}))
        Chain([matches(small)]).run(json.dumps({"a": TEXT}))


def test_neighbours_4_regular_expressions_of_a_schema_count_together_for_a_text() -> None:
    schema = {"properties": {"a": {"allOf": [{"pattern": f"a[ab]{{{number}}}c"} for number in range(100, 200)]}}}
    assert "too many for the regular expressions" in dead_letter(Validate(json_schema=schema), {"a": TEXT})
    # Each of those has a text of its own.
    apart = {f"a{number}": {"pattern": f"a[ab]{{{number}}}c"} for number in range(100, 200)}
    Chain([Validate(json_schema={"properties": apart}, invalid="flag")]).run(json.dumps({"a150": TEXT[:50_000]}))


def test_neighbours_4_what_is_compiled_for_each_item_of_a_loop_counts() -> None:
    step = Expression(expression=r"message.l.all(x, !x.matches(r'\w{200}x'))", to="r")
    assert "too large for this expression" in dead_letter(step, {"l": ["a"] * 1900})
    with within_seconds():
        Chain([step]).run(b'{"l": ["a", "b"]}')


@pytest.mark.parametrize(
    ("text", "document"),
    [
        ("message.a.matches(message.p)", {"p": "(?:[ab]{0,1000}[ab]{0,1000}){0,40}c"}),
        ("matches(message.a, message.p)", {"p": "a[ab]{30000}c"}),
        ("message.a.matches(message.p ? '(?:[ab]{0,1000}[ab]{0,1000}){0,40}c' : 'b')", {"p": True}),
        ("message.a.matches(message.p + '00}c')", {"p": "(?:[ab]{0,900}){0,10"}),
        ("message.a.matches('a\\x7b' + message.p)", {"p": "1000}"}),
    ],
    ids=range(5),
)
def test_neighbours_4_a_regular_expression_of_a_message_repeats_only_so_often(text: str, document: Any) -> None:
    said = dead_letter(Expression(expression=text, to="r"), document | {"a": TEXT[:30_000]})
    assert "has more than 20,000 steps" in said or "joined with + cannot have repetitions in braces" in said


def test_neighbours_4_an_ordinary_regular_expression_of_a_message_is_matched() -> None:
    for text, pattern in (
        ("message.a.matches(message.p)", "^[a-z]{2,5}$"),
        ("message.a.matches('^' + message.p)", "[a-z]+$"),
    ):
        [result] = Chain([Expression(expression=text, to="r")]).run(json.dumps({"a": "abc", "p": pattern}))
        assert json.loads(result.body)["r"] is True


def test_neighbours_4_like_takes_what_can_be_compared_in_a_short_time() -> None:
    assert _like("x" + "ab" * 100, "%" + "_" * 50 + "b")
    for pattern in ("%a" + "_" * 10_000 + "c%", "%a" + "_" * 100_000, "a" * 1_000_000):
        with within_seconds(), pytest.raises(ValueError, match=r"LIKE|steps"):
            _like(TEXT, pattern)


def test_neighbours_4_filters_match_the_largest_index_in_a_short_time() -> None:
    step = Regex(field="a", pattern="a[ab]{900}[ab]{900}[ab]{900}c").compile()
    with within_seconds():
        assert not step({"a": TEXT[: limits.INDEX_BYTES]})
