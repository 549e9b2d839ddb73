"""What outputs by JDBC make of values, names and errors before a driver sees them, and after one has failed."""

from decimal import Decimal
from typing import Any

import pytest

from backend.connectors.jdbc.errors import failure, refusal
from backend.connectors.jdbc.process import JdbcError
from backend.connectors.jdbc.values import array, value_text
from backend.connectors.parts.database import column_of
from backend.domain.capabilities import BatchRefusedError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("", "s:"),
        ("null", "s:null"),
        (True, "b:true"),
        (2**64, "n:18446744073709551616"),
        (Decimal("0.10"), "n:0.10"),
        ({"a": [1, None]}, 'j:{"a":[1,null]}'),
    ],
)
def test_a_value_keeps_its_kind(value: Any, text: str) -> None:
    assert value_text(value) == text


def test_an_array_is_written_as_postgresql_reads_it() -> None:
    assert array([1, None, 'a"\\ ,', [True, {"b": "é"}]]) == r'{"1",NULL,"a\"\\ ,",{"true","{\"b\":\"é\"}"}}'


@pytest.mark.parametrize(
    ("name", "column"),
    [("id", "id"), ("ID", "ID"), ("Id", None), ("total", "TOTAL"), ("TOTAL", "TOTAL"), ("absent", None)],
)
def test_a_name_means_the_same_column_or_else_the_only_one_without_regard_to_case(name: str, column: str) -> None:
    assert column_of(name, ["id", "ID", "TOTAL"]) == column


@pytest.mark.parametrize(
    ("state", "code", "reason"),
    [
        ("22001", 0, "sql_22001"),
        ("23505", 23505, "sql_23505"),
        ("23000", 1, "sql_23000"),
        ("S0001", 2628, "sql_S0001"),
        ("72000", 12899, "sql_72000"),
        ("memory", 0, "too_large"),
    ],
)
def test_what_is_in_the_data_fails_its_message_alone(state: str, code: int, reason: str) -> None:
    refused = refusal(
        JdbcError(state, str(code), "It does not fit.\nDetail: a row.", "It does not fit.\nDetail: a row.")
    )
    assert isinstance(refused, BatchRefusedError)
    assert (refused.reason, refused.retryable, refused.about_message) == (reason, False, True)
    assert str(refused).endswith("It does not fit.")
    assert "Detail" not in str(refused)


@pytest.mark.parametrize(
    ("state", "code", "reason"),
    [
        ("42S02", 208, "configuration"),
        ("S0002", 208, "configuration"),
        ("3F000", 0, "configuration"),
        ("25006", 0, "configuration"),
        ("40001", 1205, "sql_40001"),
        ("40P01", 0, "sql_40P01"),
        ("HYT00", 50200, "sql_HYT00"),
        ("08006", 0, "connection"),
        ("57P01", 0, "connection"),
        ("", 0, "connection"),
    ],
)
def test_whatever_else_fails_is_tried_again(state: str, code: int, reason: str) -> None:
    refused = refusal(JdbcError(state, str(code), "Failed.", "Failed."))
    assert not isinstance(refused, BatchRefusedError)
    assert (refused.reason, refused.retryable, refused.about_message) == (reason, True, False)


def test_a_value_that_a_query_cannot_compute_is_a_fault_of_the_query() -> None:
    assert failure(JdbcError("22012", "0", "division by zero", "division by zero")).reason == "configuration"
