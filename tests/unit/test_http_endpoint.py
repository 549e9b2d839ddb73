"""Where an output's or a call's path leads."""

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from backend.connectors.http import HttpConnection, HttpOptions


@pytest.mark.parametrize(
    ("url", "path", "expected"),
    [
        ("https://api.example.com", "", "https://api.example.com/"),
        ("https://api.example.com", "/orders", "https://api.example.com/orders"),
        ("https://api.example.com:8443/v1/", "orders", "https://api.example.com:8443/v1/orders"),
        ("https://api.example.com/v1", "/orders/", "https://api.example.com/v1/orders/"),
        ("https://api.example.com/v1?tenant=7", "orders?dry=1", "https://api.example.com/v1/orders?tenant=7&dry=1"),
        ("https://api.example.com", "?id=7", "https://api.example.com/?id=7"),
        ("https://api.example.com", "@evil.example.com/", "https://api.example.com/@evil.example.com/"),
        ("https://api.example.com", ".evil.example.com", "https://api.example.com/.evil.example.com"),
        ("https://api.example.com", "//evil.example.com", "https://api.example.com/evil.example.com"),
    ],
)
def test_a_path_is_below_the_connectors_own(url: str, path: str, expected: str) -> None:
    assert HttpConnection(url=url).address(path) == expected


def test_a_path_with_spaces_is_refused() -> None:
    with pytest.raises(ValidationError, match="Write a path without spaces"):
        HttpOptions(path="/new orders")


@given(st.text(max_size=30))
def test_no_path_leads_to_another_host(path: str) -> None:
    address = HttpConnection(url="https://api.example.com/v1").address(path)
    assert urlsplit(address).netloc == "api.example.com"
