"""ApiVersions, as far as every service answers it in the same way."""

from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey, ErrorCode
from backend.kafka.wire.codec import RequestHeader
from backend.kafka.wire.messages import REQUESTS
from backend.kafka.wire.primitives import Parts


def too_new(header: RequestHeader) -> Parts | None:
    """The answer to an ApiVersions request of an unknown version, as the protocol guide demands: error 35 in version 0,
    with the versions of ApiVersions itself. None if the version is known."""
    versions = REQUESTS[ApiKey.API_VERSIONS].versions
    if header.version in versions:
        return None
    response = codec.response_type(ApiKey.API_VERSIONS)
    own = response.type_of("api_keys")(
        api_key=ApiKey.API_VERSIONS, min_version=versions.first, max_version=versions.last
    )
    body = response(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
    return codec.write_response(ApiKey.API_VERSIONS, 0, header.correlation_id, body)
