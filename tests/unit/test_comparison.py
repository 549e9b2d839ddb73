from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from backend.domain import json
from backend.domain.comparison import are_equal, are_ordered, exact

documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(documents)
def test_what_a_configuration_has_equals_the_same_in_a_message(value: Any) -> None:
    read = json.loads(json.dumps(value))
    assert are_equal(read, exact(value))


@given(documents, documents)
def test_it_is_symmetric_and_knows_kinds(one: Any, other: Any) -> None:
    one, other = exact(one), exact(other)
    assert (
        are_equal(one, other) == are_equal(other, one) == (json.canonical(_plain(one)) == json.canonical(_plain(other)))
    )
    assert are_ordered(one, other) == are_ordered(other, one)


def _plain(value: Any) -> Any:
    """With one way to write each number."""
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        number = Decimal(value).normalize() if isinstance(value, Decimal) else value
        return int(number) if number == int(number) else number
    if isinstance(value, list):
        return [_plain(element) for element in value]
    return {name: _plain(element) for name, element in value.items()} if isinstance(value, dict) else value
