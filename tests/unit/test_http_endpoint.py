"""Where an output's or a call's path leads."""

from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from backend.connectors.http.address import compile_path
from backend.connectors.http.connection import HttpConnection
from backend.connectors.http.options import HttpBatchOptions, HttpOptions
from backend.domain.errors import ConfigError
from backend.domain.http_text import encoded
from backend.domain.message_templates import UnfitValueError


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


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/notificações", "/notifica%C3%A7%C3%B5es"),
        ("/notifica%C3%A7%C3%B5es", "/notifica%C3%A7%C3%B5es"),
        ("/a%20b/100%", "/a%20b/100%25"),
        ("/busca?q=São&tags[]=a", "/busca?q=S%C3%A3o&tags%5B%5D=a"),
        ("/orders;v=1/@me?at=10:00,11:00&to=a+b!", "/orders;v=1/@me?at=10:00,11:00&to=a+b!"),
        ("/line\nbreak", "/line%0Abreak"),
    ],
)
def test_a_path_is_encoded_once(path: str, expected: str) -> None:
    assert HttpConnection(url="https://api.example.com").address(path) == f"https://api.example.com{expected}"


@given(st.text(max_size=30), st.sampled_from(["{{x}}", "/{{x}}", "{{x}}/y", "@{{x}}:1/", "/y?z={{x}}"]))
def test_no_value_leads_to_another_host_or_out_of_the_path(value: str, template: str) -> None:
    try:
        path = compile_path(template)({"x": value})
    except UnfitValueError:
        return
    address = urlsplit(HttpConnection(url="https://api.example.com/v1").address(path))
    assert address.netloc == "api.example.com"
    assert address.path.startswith("/v1/")
    assert address.path.count("/") == HttpConnection(url="https://api.example.com/v1").address(template).count("/") - 2
    assert not {".", ".."} & set(address.path.split("/"))
    assert address.query == (f"z={quote(value, safe='')}" if "?" in template else "")
    assert not address.fragment


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"path": "/{{a..b}}"}, "not a field path"),
        ({"path": "/{{$message.secret}}"}, r"There is no \$message.secret; there are \$message.id"),
        ({"path": "/{{$message}}"}, r"There is no \$message;"),
        ({"path": "/a b/{{c}}"}, "Write a path without spaces"),
        ({"headers": {"X-A": "{{$message.a}}"}}, "There is no"),
        ({"body": {"a": ["{{$message.a}}"]}}, "There is no"),
        ({"body": "{{a..b}}"}, "not a field path"),
    ],
)
def test_a_template_that_fits_no_message_is_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        HttpOptions.model_validate(options)


@pytest.mark.parametrize("options", [{"path": "/{{a}}"}, {"headers": {"X-A": "{{a}}"}}])
def test_messages_of_a_batch_share_a_path_and_headers(options: dict[str, Any]) -> None:
    HttpOptions.model_validate(options)
    with pytest.raises(ValidationError, match="Messages of a batch share a path and headers") as refused:
        HttpBatchOptions.model_validate(options)
    assert refused.value.errors()[0]["loc"][0] in options


@given(st.text(max_size=30))
def test_every_address_is_ascii(path: str) -> None:
    address = HttpConnection(url="https://api.example.com/v1").address(path)
    assert address.isascii()
    assert address.isprintable()
    assert HttpConnection(url="https://api.example.com").address(encoded(path)) == HttpConnection(
        url="https://api.example.com"
    ).address(path)


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"X-Nome": "São\r\nX-Admin: 1"}, "headers.X-Nome"),
        ({"X-Nome": "a\x00b"}, "headers.X-Nome"),
        ({"X Nome": "a"}, "headers.X Nome"),
        ({"X-Ação": "a"}, "headers.X-Ação"),
        ({"": "a"}, "headers."),
    ],
)
def test_a_header_that_cannot_be_sent_is_refused_at_its_field(headers: dict[str, str], field: str) -> None:
    for model, data in (
        (HttpOptions, {"headers": headers}),
        (HttpConnection, {"url": "https://api.example.com", "secret_headers": headers}),
    ):
        with pytest.raises(ValidationError) as refused:
            model.model_validate(data)
        [path] = ConfigError.of(refused.value, data).errors
        assert path == (field if model is HttpOptions else f"secret_{field}")


def test_a_token_with_a_line_break_is_refused() -> None:
    with pytest.raises(ValidationError, match="line break"):
        HttpConnection.model_validate(
            {"url": "https://api.example.com", "authentication": {"type": "bearer", "token": "abc\n"}}
        )
