"""How a connection begins: which APIs there are, and who the client is."""

from backend.kafka_proxy.addresses import ADDRESSED
from backend.kafka_proxy.config import ProxyConfig
from backend.kafka_proxy.routes import ROUTES
from backend.kafka_proxy.sasl import REPLAYED, Credentials
from backend.kafka_wire import codec
from backend.kafka_wire.api import ApiKey, ErrorCode
from backend.kafka_wire.codec import Parts, RequestHeader
from backend.kafka_wire.messages import REQUESTS

APIS = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}

_ADVERTISED = {*ROUTES, *ADDRESSED, *APIS, ApiKey.FETCH}


class Handshake:
    """The broker that is asked first decides; the proxy notes what is said, to say it again to the others."""

    def __init__(self, config: ProxyConfig) -> None:
        self._config = config
        self._mechanism = ""
        self._message = b""
        self._offered: Credentials | None = None
        self.credentials: Credentials | None = None

    @property
    def is_pinned(self) -> bool:
        """Whether the broker must stay the same: it has asked something that only it can check."""
        return bool(self._mechanism) and self.credentials is None

    def local_answer(self, header: RequestHeader, frame: bytearray) -> Parts | None:
        """What the proxy answers by itself; None if a broker is asked."""
        if header.api_key == ApiKey.API_VERSIONS:
            return self._too_new(header)
        body = codec.read_request(header.api_key, header.version, frame, header.body)
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            self._mechanism = body.mechanism
        else:
            self._message = body.auth_bytes
        return None

    def answered(self, header: RequestHeader, answer: bytearray, brokers: int) -> Parts:
        """The broker's answer, as the client gets it."""
        if header.api_key == ApiKey.API_VERSIONS:
            return self._api_versions(header, answer)
        body = codec.read_response(header.api_key, header.version, answer)
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            if brokers > 1:
                body.mechanisms = [name for name in body.mechanisms if name in REPLAYED]
                if self._mechanism not in body.mechanisms:
                    body.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            if body.error_code:
                self._mechanism = ""
        elif body.error_code == ErrorCode.NONE and self._mechanism in REPLAYED:
            self._offered = Credentials(self._mechanism, self._message)
        return codec.write_response(header.api_key, header.version, header.correlation_id, body)

    def new_credentials(self) -> Credentials | None:
        """Those that a broker has just taken."""
        found, self._offered = self._offered, None
        self.credentials = found or self.credentials
        return found

    @staticmethod
    def _too_new(header: RequestHeader) -> Parts | None:
        """Protocol guide: error 35 in version 0, with the versions of ApiVersions itself."""
        versions = REQUESTS[ApiKey.API_VERSIONS].versions
        if header.version in versions:
            return None
        response = codec.response_type(ApiKey.API_VERSIONS)
        own = response.type_of("api_keys")(
            api_key=ApiKey.API_VERSIONS, min_version=versions.first, max_version=versions.last
        )
        body = response(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
        return codec.write_response(ApiKey.API_VERSIONS, 0, header.correlation_id, body)

    @staticmethod
    def _api_versions(header: RequestHeader, answer: bytearray) -> Parts:
        if int.from_bytes(answer[8:10], "big") == ErrorCode.UNSUPPORTED_VERSION:
            codec.put_response_correlation(answer, header.correlation_id)
            return [answer]
        body = codec.read_response(header.api_key, header.version, answer)
        body.api_keys = [api for api in body.api_keys if api.api_key in _ADVERTISED]
        for api in body.api_keys:
            api.max_version = min(api.max_version, REQUESTS[api.api_key].versions.last)
        return codec.write_response(header.api_key, header.version, header.correlation_id, body)
