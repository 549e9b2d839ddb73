"""Why a message could not be delivered: Headrace's own reasons.

Connectors add their own: a word, or ``http_STATUS`` and ``kafka_CODE`` for another system's answer. The console has a
label for each in every language (``reasons`` in its catalogues).
"""

from enum import StrEnum


class Reason(StrEnum):
    """A stable word for counting and filtering."""

    MALFORMED = "malformed"
    UNKNOWN_PIPELINE = "unknown_pipeline"
    UNKNOWN_OUTPUT = "unknown_output"
    CONFIGURATION = "configuration"
    CONFIGURATION_UNAVAILABLE = "configuration_unavailable"
    INTERNAL = "internal"
    TRANSFORM_FAILED = "transform_failed"
    CALL_FAILED = "call_failed"
    DEDUPLICATION_UNAVAILABLE = "deduplication_unavailable"
    ADAPTING_SATURATED = "adapting_saturated"
    OUTPUT_SATURATED = "output_saturated"
    BREAKER_OPEN = "breaker_open"
    RATE_LIMITED = "rate_limited"
    TIMEOUT = "timeout"
    FORBIDDEN = "forbidden"
    DNS = "dns"
    TLS = "tls"
    CONNECTION = "connection"
    NOT_JSON = "not_json"
    ANSWER = "answer"
    READ_FAILED = "read_failed"
