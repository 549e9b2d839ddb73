"""Why a message could not be delivered: Headrace's own reasons, each with what people read.

Connectors add reasons of their own: a word, and ``http_STATUS`` or ``kafka_CODE`` for another system's answer.
"""

from enum import StrEnum


class Reason(StrEnum):
    """A stable word for counting and filtering."""

    label: str

    def __new__(cls, value: str, label: str = "") -> "Reason":
        member = str.__new__(cls, value)
        member._value_ = value
        member.label = label
        return member

    MALFORMED = "malformed", "Not a Headrace message"
    UNKNOWN_PIPELINE = "unknown_pipeline", "Unknown pipeline or version"
    UNKNOWN_OUTPUT = "unknown_output", "Unknown output"
    CONFIGURATION = "configuration", "Configuration does not work"
    CONFIGURATION_UNAVAILABLE = "configuration_unavailable", "Configuration unavailable"
    INTERNAL = "internal", "Unexpected error in a connector"
    TRANSFORM_FAILED = "transform_failed", "Rejected by a step"
    CALL_FAILED = "call_failed", "An external call failed"
    DEDUPLICATION_UNAVAILABLE = "deduplication_unavailable", "Deduplication unavailable"
    ADAPTING_SATURATED = "adapting_saturated", "Too many messages waiting for external calls"
    OUTPUT_SATURATED = "output_saturated", "Too many messages waiting for the output"
    BREAKER_OPEN = "breaker_open", "Circuit breaker open"
    RATE_LIMITED = "rate_limited", "Rate limit reached"
    TIMEOUT = "timeout", "No answer in time"
    FORBIDDEN = "forbidden", "Address not allowed"
    DNS = "dns", "Unknown host"
    TLS = "tls", "TLS connection not trusted"
    CONNECTION = "connection", "No connection"
    NOT_JSON = "not_json", "Not JSON"
    ANSWER = "answer", "Unusable answer"
    READ_FAILED = "read_failed", "Input could not be read"


def label(reason: str) -> str:
    """What people read for a reason, a connector's own included."""
    try:
        return Reason(reason).label
    except ValueError:
        pass
    system, _, code = reason.partition("_")
    match system:
        case "http" if code.isdigit():
            return f"Answered HTTP {code}"
        case "kafka" if code:
            return f"Rejected by Kafka: {code.replace('_', ' ')}"
    return reason.replace("_", " ").capitalize()
