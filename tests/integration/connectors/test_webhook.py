"""Verification of incoming webhooks; ``tests/e2e/test_messages.py`` sends them to a running installation."""

import base64
import hashlib
import hmac
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError
from standardwebhooks.webhooks import Webhook

from backend.connectors.webhook import WebhookConnection, WebhookVerify
from backend.domain.capabilities import Options, VerificationError
from tests.integration.connectors.suites import Genuine, VerifySuite

OLD, NEW, FOREIGN = "whsec_" + "b2xk" * 10, "whsec_" + "bmV3" * 10, "whsec_" + "Zm9y" * 10
STANDARD = {"scheme": {"type": "standard_webhooks", "secrets": {"old": OLD, "new": NEW}}}
BODY = b'{"a": 1}'


def signed(secret: str, body: bytes, at: float) -> dict[str, str]:
    """As another implementation of the standard signs."""
    signature = Webhook(secret).sign("msg_1", datetime.fromtimestamp(at, UTC), body.decode())
    return {"webhook-id": "msg_1", "webhook-timestamp": str(int(at)), "webhook-signature": signature}


class _Webhook:
    type = "webhook"


class TestStandardWebhooks(_Webhook, VerifySuite):
    def connection(self) -> dict[str, Any]:
        return STANDARD

    def sent(self, body: bytes) -> Genuine:
        headers = signed(NEW, body, time.time())
        return Genuine(headers, tuple(headers))

    def foreign(self, body: bytes) -> Genuine:
        headers = signed(FOREIGN, body, time.time())
        return Genuine(headers, tuple(headers))


class _Hmac(_Webhook, VerifySuite):
    algorithm: str
    encoding: str
    prefix = ""

    def connection(self) -> dict[str, Any]:
        scheme = {"type": "hmac", "header": "X-Sign", "secret": "secret-é", "algorithm": self.algorithm}
        return {"scheme": {**scheme, "encoding": self.encoding, "prefix": self.prefix}}

    def sent(self, body: bytes) -> Genuine:
        return self._signed("secret-é", body)

    def foreign(self, body: bytes) -> Genuine:
        return self._signed("secret", body)

    def _signed(self, secret: str, body: bytes) -> Genuine:
        digest = hmac.new(secret.encode(), body, getattr(hashlib, self.algorithm)).digest()
        text = digest.hex() if self.encoding == "hex" else base64.b64encode(digest).decode()
        return Genuine({"x-sign": self.prefix + text}, ("x-sign",))


class TestHmacInHexadecimals(_Hmac, VerifySuite):
    algorithm, encoding, prefix = "sha256", "hex", "sha256="

    def test_a_signature_without_its_prefix_is_refused(self) -> None:
        self.refused({"x-sign": self.sent(BODY).headers["x-sign"].removeprefix(self.prefix)}, BODY)


class TestHmacInBase64(_Hmac, VerifySuite):
    algorithm, encoding = "sha512", "base64"


class TestBasicAuthentication(_Webhook, VerifySuite):
    proves_body = False

    def connection(self) -> dict[str, Any]:
        return {"scheme": {"type": "basic", "username": "José", "password": "planted-pass:word"}}

    def sent(self, body: bytes) -> Genuine:
        return self._of("José:planted-pass:word")

    def foreign(self, body: bytes) -> Genuine:
        return self._of("José:planted-pass")

    def _of(self, pair: str) -> Genuine:
        header = "Basic " + base64.b64encode(pair.encode()).decode()
        return Genuine({"authorization": header}, ("authorization",))


class TestBearerAuthentication(_Webhook, VerifySuite):
    proves_body = False

    def connection(self) -> dict[str, Any]:
        return {"scheme": {"type": "bearer", "token": "planted-token"}}

    def sent(self, body: bytes) -> Genuine:
        return Genuine({"authorization": "Bearer planted-token"}, ("authorization",))

    def foreign(self, body: bytes) -> Genuine:
        return Genuine({"authorization": "Bearer another-token"}, ("authorization",))


def verify_standard(headers: dict[str, str]) -> None:
    verifier = WebhookVerify(WebhookConnection.model_validate(STANDARD), Options())
    verifier.verify({name: [value] for name, value in headers.items()}, BODY)


def test_standard_webhooks_of_every_active_secret_are_accepted() -> None:
    for secret in (OLD, NEW):
        verify_standard(signed(secret, BODY, time.time()))
    both = signed(OLD, BODY, time.time())
    both["webhook-signature"] = "v1,AAAA " + both["webhook-signature"]
    verify_standard(both)


@pytest.mark.parametrize("age", [-400, 400])
def test_a_stale_timestamp_is_refused(age: float) -> None:
    with pytest.raises(VerificationError, match="5 minutes"):
        verify_standard(signed(OLD, BODY, time.time() - age))


def test_a_secret_that_is_none_is_refused_without_being_repeated() -> None:
    with pytest.raises(ValidationError) as error:
        WebhookConnection.model_validate({"scheme": {"type": "standard_webhooks", "secrets": {"a": "not-base64!"}}})
    assert "base64" in str(error.value)
    assert "not-base64!" not in str(error.value)
