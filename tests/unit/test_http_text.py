"""What becomes a header, at save, when messages are accepted, and when they are sent."""

import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from backend.connectors.parts.authentication import BasicAuthentication, BearerAuthentication
from backend.connectors.parts.http_address import HttpAddress
from backend.connectors.webhook import HmacHeader, WebhookConnection, WebhookVerify
from backend.domain import http_text, limits, webhook_signature
from backend.domain.capabilities import Options, VerificationError
from backend.domain.http_text import HeaderError
from backend.ingest import requests
from backend.ingest.problems import Problem
from backend.ingest.requests import headers_of

# As an HTTP server passes them on: any byte.
OCTETS = st.text(st.characters(max_codepoint=255), max_size=400)
SECRET = "b2xk" * 10
SCHEMES: list[dict[str, Any]] = [
    {"type": "standard_webhooks", "secrets": {"a": SECRET}},
    {"type": "hmac", "header": "X-Sign", "secret": "s", "prefix": "sha256="},
    {"type": "hmac", "header": "X-Sign", "secret": "s", "algorithm": "sha1", "encoding": "base64"},
    {"type": "basic", "username": "u", "password": "p"},
    {"type": "bearer", "token": "t"},
]
PROOFS = ("webhook-id", "webhook-timestamp", "webhook-signature", "x-sign", "authorization")


def verify(scheme: dict[str, Any], headers: dict[str, list[str]], body: bytes = b"{}") -> None:
    WebhookVerify(WebhookConnection.model_validate({"scheme": scheme}), Options()).verify(headers, body)


@given(st.sampled_from(SCHEMES), st.dictionaries(st.sampled_from(PROOFS), st.lists(OCTETS, max_size=3)))
def test_neighbours_6_no_proof_raises(scheme: dict[str, Any], headers: dict[str, list[str]]) -> None:
    with pytest.raises(VerificationError):
        verify(scheme, headers)


@pytest.mark.parametrize("timestamp", ["9" * 309, "9" * 5_000, "1e400", "²", "-1", "", " 1"])
def test_neighbours_6_no_timestamp_raises(timestamp: str) -> None:
    headers = {"webhook-id": ["a"], "webhook-timestamp": [timestamp], "webhook-signature": ["v1,AAAA"]}
    with pytest.raises(VerificationError):
        verify(SCHEMES[0], headers)


def test_neighbours_6_each_of_several_signature_headers_counts() -> None:
    genuine = "sha256=" + hmac.new(b"s", b"{}", hashlib.sha256).hexdigest()
    for signatures in ([genuine, "sha256=00"], ["sha256=00", genuine], ["", "ÿ" * 5_000, genuine]):
        verify(SCHEMES[1], {"x-sign": signatures})
    with pytest.raises(VerificationError):
        verify(SCHEMES[1], {"x-sign": ["sha256=00", genuine[:-1]]})


def test_neighbours_6_each_of_several_standard_signatures_counts_and_the_id_must_be_clear() -> None:
    now = int(time.time())
    genuine = webhook_signature.sign([webhook_signature.key_of(SECRET)], "a", now, b"{}")
    headers = {"webhook-id": ["a"], "webhook-timestamp": [str(now)], "webhook-signature": ["v1,AAAA", genuine]}
    verify(SCHEMES[0], headers)
    with pytest.raises(VerificationError):
        verify(SCHEMES[0], headers | {"webhook-id": ["a", "b"]})


def test_neighbours_6_hexadecimal_digits_may_be_capital_letters() -> None:
    digest = hmac.new(b"s", b"{}", hashlib.sha256).hexdigest().upper()
    verify(SCHEMES[1], {"x-sign": [f"sha256={digest}"]})
    with pytest.raises(VerificationError):
        verify(SCHEMES[1], {"x-sign": [f"SHA256={digest}"]})


@pytest.mark.parametrize(
    ("scheme", "field"),
    [
        ({"header": "X Sig"}, "header"),
        ({"header": "X-Sig\n"}, "header"),
        ({"header": ""}, "header"),
        ({"header": "X-Ação"}, "header"),
        ({"header": "Content-Length"}, "header"),
        ({"secret": "abc\n"}, "secret"),
        ({"secret": " abc"}, "secret"),
        ({"secret": "abc "}, "secret"),
        ({"secret": ""}, "secret"),
        ({"secret": "a\x00"}, "secret"),
        ({"prefix": "a\r\n"}, "prefix"),
    ],
)
def test_neighbours_6_a_scheme_that_never_works_is_refused_at_its_field(scheme: dict[str, str], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        HmacHeader.model_validate({"type": "hmac", "header": "X-Sig", "secret": "a b", **scheme})
    assert [error["loc"] for error in refused.value.errors()] == [(field,)]


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (BasicAuthentication, {"username": "a:b", "password": "p"}),
        (BasicAuthentication, {"username": "a\n", "password": "p"}),
        (BasicAuthentication, {"username": "a", "password": "p\n"}),
        (BearerAuthentication, {"token": "abc\n"}),
        (BearerAuthentication, {"token": "a\r\nX-Evil: 1"}),
        (BearerAuthentication, {"token": "a\x00"}),
        (BearerAuthentication, {"token": " \t"}),
        (HttpAddress, {"url": "https://a.example", "secret_headers": {"Content-Length": "1"}}),
    ],
)
def test_neighbours_6_credentials_that_no_header_can_hold_are_refused(model: Any, data: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(data)


def test_neighbours_6_blanks_around_a_token_are_no_part_of_it() -> None:
    assert BearerAuthentication.model_validate({"token": " abc\t"}).header() == "Bearer abc"


CHECKS: list[Callable[[str], str]] = [
    lambda value: f"X-A: {TypeAdapter(http_text.HeaderValue).validate_python(value)}",
    lambda value: f"{TypeAdapter(http_text.HeaderName).validate_python(value)}: a",
    lambda value: f"Content-Type: {http_text.content_type(value.encode())}",
    lambda value: f"Authorization: {BearerAuthentication.model_validate({'token': value}).header()}",
    lambda value: (
        "Authorization: " + BasicAuthentication.model_validate({"username": value, "password": value}).header()
    ),
]


@given(st.sampled_from(CHECKS), st.text(max_size=40) | OCTETS)
def test_neighbours_6_what_is_accepted_is_one_line_with_one_name(check: Callable[[str], str], value: str) -> None:
    try:
        line = check(value)
    except ValueError:
        return
    assert not {*line} & {*map(chr, {*range(32), 127} - {9})}
    name, _, rest = line.partition(":")
    assert name.isascii()
    assert not {*name} & {*' "(),/;<=>?@[\\]{}'}
    assert rest[1:] == rest[1:].strip(" \t")


@given(st.binary(max_size=40))
def test_neighbours_6_a_content_type_is_text_of_ascii(sent: bytes) -> None:
    is_text = all(byte == 9 or 32 <= byte < 127 for byte in sent)
    try:
        assert http_text.content_type(sent) == sent.decode().strip(" \t")
        assert is_text
    except HeaderError:
        assert not is_text


def test_neighbours_6_a_request_has_one_content_type_of_bounded_length() -> None:
    def declared(*values: bytes) -> str:
        return requests.declared_type(headers_of({"headers": [(b"content-type", value) for value in values]}))

    assert declared(b' application/json; charset="utf-8" ') == 'application/json; charset="utf-8"'
    for values, status in (
        ((), 415),
        ((b" ",), 415),
        ((b"text/\xe9",), 400),
        (("text/é".encode(),), 400),
        ((b"text/plain", b"text/plain"), 400),
        ((b"a" * (limits.HEADER_BYTES + 1),), 400),
    ):
        with pytest.raises(Problem) as refused:
            declared(*values)
        assert refused.value.status == status
