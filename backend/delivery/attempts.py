"""What the attempts log and the engine's caller receive about one attempt."""

import random

from backend.delivery.client import DeliveryClient
from backend.delivery.delivery import Delivery
from backend.delivery.outcomes import Outcome, Suppressed, Undeliverable
from backend.domain.capabilities import DeliveryError, Receipt
from backend.domain.masking import redacted
from backend.domain.message import utc_now
from backend.domain.reasons import Reason
from backend.domain.records import Attempt
from backend.domain.retry import held_text
from backend.resilience.gate import Held, Repeat

_BREAKER_OPEN = "The circuit breaker of this output is open; the message is delivered once it has closed."
_RATE_LIMITED = "The output's rate limit is used up; the message is delivered as the limit allows."


def succeeded(client: DeliveryClient, number: int, seconds: float, receipt: Receipt) -> list[Attempt]:
    """The entry of a success, if this is one of those that are logged."""
    if random.random() >= client.runtime.config.logged_successes:
        return []
    response = redacted(receipt.body, client.secrets)
    return [Attempt(utc_now(), number, _milliseconds(seconds), receipt.status, response=response)]


def failed(error: DeliveryError, number: int, seconds: float) -> Attempt:
    return Attempt(
        utc_now(), number, _milliseconds(seconds), error.status, error.reason, str(error)[:2000], error.response
    )


def not_attempted(admission: Repeat | Held, delivery: Delivery) -> Outcome:
    """The outcome of a message that was not admitted."""
    if isinstance(admission, Repeat):
        return Suppressed(admission.position in (delivery.position, *delivery.read_at), delivery.attempts)
    return Undeliverable(admission.reason, _why_held(admission), delivery.attempts, due=admission.due)


def _why_held(held: Held) -> str:
    if held.asked:
        return held_text(held.due)
    if held.reason == Reason.RATE_LIMITED:
        return _RATE_LIMITED
    return f"{_BREAKER_OPEN} What opened it: {held.cause}" if held.cause else _BREAKER_OPEN


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
