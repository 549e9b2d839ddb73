"""Why a message could not be delivered: Headrace's own reasons.

Connectors add ``{system}_{code}`` for another system's answer, such as ``http_503``. The console's catalogues have a
label for each reason in every language: ``reasons`` for whole reasons, ``answers`` for systems, whose code is quoted.
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
    ENDED_WORKER = "ended_worker"
    OUT_OF_MEMORY = "out_of_memory"
    TEMPLATE = "template"
    TRANSFORM_FAILED = "transform_failed"
    TOO_LARGE = "too_large"
    REFUSED_BY_KAFKA = "refused_by_kafka"
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
    UNFIT_VALUE = "unfit_value"
    TOO_MANY_FIELDS = "too_many_fields"
    STAGING_UNAVAILABLE = "staging_unavailable"
    PIPELINE_DELETED = "pipeline_deleted"
