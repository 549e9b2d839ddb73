"""What a receiver's answer means."""

from backend.domain.capabilities import DeliveryError, Receipt
from backend.domain.retry import LONGEST_HOLD_SECONDS
from backend.network.http_client import Response

_RETRYABLE = (408, 425, 429)
_ABOUT_THE_SENDER = (401, 402, 403, 407)
"""Final answers that any message would get; every other 4xx that is final is about the one message."""


def receipt(answer: Response, shown: int | None = None) -> Receipt:
    return Receipt(status=str(answer.status), body=answer.body[:shown].decode(errors="replace"))


def refused(
    answer: Response,
    kind: type[DeliveryError] = DeliveryError,
    *,
    who: str = "receiver",
    final: str = "the receiver rejected the message; correct the pipeline or the receiver, then redeliver",
) -> DeliveryError:
    """The error for an unsuccessful answer; ``final`` is the advice when a retry would not help."""
    text = answer.body.decode(errors="replace")
    # An interim answer says nothing about the message.
    retryable = answer.status in _RETRYABLE or answer.status >= 500 or answer.status < 200
    about_message = 400 <= answer.status < 500 and not retryable and answer.status not in _ABOUT_THE_SENDER
    excerpt = f": {text[:200]}" if text else ""
    if answer.location and not retryable:
        final = (
            f"it redirects to {answer.location}, and Headrace follows no redirects; enter the address where it leads"
        )
    advice = "it will be retried" if retryable else final
    return kind(
        f"http_{answer.status}",
        f"The {who} answered {answer.status}{excerpt} ({advice}).{_bound(answer)}",
        retryable=retryable,
        retry_after=answer.retry_after,
        status=str(answer.status),
        response=text,
        about_message=about_message,
    )


def _bound(answer: Response) -> str:
    """What a user has to know whose receiver asks for more time than Headrace leaves it."""
    if answer.retry_after is None or answer.retry_after < LONGEST_HOLD_SECONDS:
        return ""
    hours = f"{LONGEST_HOLD_SECONDS / 3600:g}"
    return f" It asks to be left alone for {hours} hours or more (Retry-After); Headrace waits {hours} hours at most."
