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

OLD, NEW = "whsec_" + "b2xk" * 10, "whsec_" + "bmV3" * 10
BODY = b'{"a": 1}'


def verify(scheme: dict[str, Any], headers: dict[str, str], body: bytes = BODY) -> None:
    WebhookVerify(WebhookConnection.model_validate({"scheme": scheme}), Options()).verify(headers, body)


def signed(secret: str, at: float) -> dict[str, str]:
    """As another implementation of the standard signs."""
    signature = Webhook(secret).sign("msg_1", datetime.fromtimestamp(at, UTC), BODY.decode())
    return {"webhook-id": "msg_1", "webhook-timestamp": str(int(at)), "webhook-signature": signature}


def test_standard_webhooks_of_every_active_secret_are_accepted() -> None:
    scheme = {"type": "standard_webhooks", "secrets": {"old": OLD, "new": NEW}}
    for secret in (OLD, NEW):
        verify(scheme, signed(secret, time.time()))
    both = signed(OLD, time.time())
    both["webhook-signature"] = "v1,AAAA " + both["webhook-signature"]
    verify(scheme, both)


@pytest.mark.parametrize("age", [-400, 400])
def test_a_stale_timestamp_is_refused(age: float) -> None:
    with pytest.raises(VerificationError, match="5 minutes"):
        verify({"type": "standard_webhooks", "secrets": {"a": OLD}}, signed(OLD, time.time() - age))


def test_another_secret_body_or_id_is_refused() -> None:
    scheme = {"type": "standard_webhooks", "secrets": {"a": OLD}}
    good = signed(OLD, time.time())
    cases: list[tuple[dict[str, str], bytes]] = [
        (signed(NEW, time.time()), BODY),
        (good, BODY + b" "),
        ({**good, "webhook-id": "msg_2"}, BODY),
        ({**good, "webhook-signature": ""}, BODY),
        ({}, BODY),
    ]
    for headers, body in cases:
        with pytest.raises(VerificationError):
            verify(scheme, headers, body)


@pytest.mark.parametrize("encoding", ["hex", "base64"])
def test_an_hmac_in_a_header(encoding: str) -> None:
    scheme = {"type": "hmac", "header": "X-Sign", "secret": "s", "encoding": encoding, "prefix": "sha256="}
    made = hmac.new(b"s", BODY, hashlib.sha256).digest()
    text = made.hex() if encoding == "hex" else base64.b64encode(made).decode()
    verify(scheme, {"x-sign": f"sha256={text}"})
    for wrong in (text, f"sha256={text[:-1]}", ""):
        with pytest.raises(VerificationError, match="X-Sign"):
            verify(scheme, {"x-sign": wrong})


def test_basic_and_bearer() -> None:
    basic = {"type": "basic", "username": "u", "password": "p"}
    verify(basic, {"authorization": "Basic " + base64.b64encode(b"u:p").decode()})
    verify({"type": "bearer", "token": "t"}, {"authorization": "Bearer t"})
    for scheme in (basic, {"type": "bearer", "token": "other"}):
        with pytest.raises(VerificationError):
            verify(scheme, {"authorization": "Bearer t"})


def test_a_secret_that_is_none_is_refused_without_being_repeated() -> None:
    with pytest.raises(ValidationError) as error:
        WebhookConnection.model_validate({"scheme": {"type": "standard_webhooks", "secrets": {"a": "not-base64!"}}})
    assert "base64" in str(error.value)
    assert "not-base64!" not in str(error.value)
