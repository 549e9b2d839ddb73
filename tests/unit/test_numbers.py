import pytest

from backend.domain.numbers import small_number


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("007", 7), ("2147483648", 2**31), ("", None), ("-1", None), ("1.0", None), ("²", None), ("١", None)],
)
def test_a_small_number_has_up_to_ten_digits(text: str, number: int | None) -> None:
    assert small_number(text) == number
    assert small_number(text + "9" * 10_000) is None
