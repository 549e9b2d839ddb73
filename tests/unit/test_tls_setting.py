"""Certificates and keys as fields of a connection: what does not fit is an error at its field."""

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from backend.connectors.http.connection import HttpConnection
from backend.connectors.parts.tls import Tls
from tests.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def issued(authority: Authority, name: str, password: str = "") -> tuple[str, str]:
    certificate, key = authority.issue(name, password)
    return certificate.read_text(), key.read_text()


Refusal = Callable[..., tuple[str, str]]


@pytest.fixture(params=["a part", "an HTTP connection"])
def refusal(request: pytest.FixtureRequest) -> Refusal:
    """The field at fault, and what is wrong with it; no secret is in it."""
    model, more = (Tls, {}) if request.param == "a part" else (HttpConnection, {"url": "https://api.example.com"})

    def refusal(**fields: str) -> tuple[str, str]:
        with pytest.raises(ValidationError) as failed:
            model.model_validate({**more, **fields})
        [error] = failed.value.errors()
        assert not [line for line in fields.get("key", "").splitlines()[1:-1] if line in str(failed.value)]
        return str(error["loc"][0]), error["msg"]

    return refusal


def test_a_certificate_and_its_key_make_a_context(authority: Authority) -> None:
    certificate, key = issued(authority, "client", "pass")
    tls = Tls.model_validate(
        {"ca": authority.certificate.read_text(), "certificate": certificate, "key": key, "key_password": "pass"}
    )
    context = tls.context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert len(context.get_ca_certs()) == 1


def test_pem_texts_are_read_without_their_line_breaks(authority: Authority) -> None:
    certificate, key = issued(authority, "client")
    tls = Tls.model_validate({"certificate": certificate.replace("\n", ""), "key": key.replace("\n", " ")})
    assert tls.certificate == certificate
    assert tls.key is not None
    assert tls.key.get_secret_value() == key


def test_what_does_not_fit_is_an_error_at_its_field(authority: Authority, refusal: Refusal) -> None:
    certificate, key = issued(authority, "client")
    _, other = issued(authority, "other")
    _, encrypted = issued(authority, "encrypted", "pass")
    assert refusal(ca="nonsense")[0] == "ca"
    assert refusal(ca="-----BEGIN CERTIFICATE-----AAAA-----END CERTIFICATE-----")[0] == "ca"
    assert refusal(certificate=certificate) == ("key", "Value error, Enter the private key of the client certificate.")
    assert refusal(certificate=certificate, key="nonsense")[0] == "key"
    assert refusal(certificate=certificate, key=encrypted)[0] == "key"
    assert "another certificate" in refusal(certificate=certificate, key=other)[1]
    assert "needs the client certificate" in refusal(key=key)[1]
