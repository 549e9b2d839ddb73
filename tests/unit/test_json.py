import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.domain import json

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(values)
def test_round_trip_keeps_every_value(value: object) -> None:
    assert json.loads(json.dumps(value)) == value


@pytest.mark.parametrize("text", ["9223372036854775809", "1.10", "123456789012345678901234567890", "1E+400", "-0.0"])
def test_numbers_are_written_as_they_came(text: str) -> None:
    assert json.dumps(json.loads(text)) == text.encode()


@pytest.mark.parametrize("text", [b"", b"{", b"NaN", b'{"a":1,}', b'"\xff"', b"[" * 100_000])
def test_refuses_what_is_not_json(text: bytes) -> None:
    with pytest.raises(json.InvalidJsonError):
        json.loads(text)
