"""What a client proved itself with, shown again on each of its connections to brokers."""

from dataclasses import dataclass

from backend.kafka_wire import codec
from backend.kafka_wire.api import ApiKey, ErrorCode
from backend.kafka_wire.codec import Parts

REPLAYED = ("PLAIN", "OAUTHBEARER")
"""Mechanisms whose one message is good for every broker. SCRAM answers a challenge that is the broker's own."""

_VERSION = 1
_CLIENT_ID = "headrace-proxy"


@dataclass(frozen=True)
class Credentials:
    """A secret; never logged."""

    mechanism: str
    message: bytes

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism})"

    def steps(self) -> list[tuple[ApiKey, Parts]]:
        """The requests that show them to a broker, in their order."""
        handshake = codec.request_type(ApiKey.SASL_HANDSHAKE)(mechanism=self.mechanism)
        authenticate = codec.request_type(ApiKey.SASL_AUTHENTICATE)(auth_bytes=self.message)
        bodies = {ApiKey.SASL_HANDSHAKE: handshake, ApiKey.SASL_AUTHENTICATE: authenticate}
        return [(key, codec.write_request(key, _VERSION, 0, _CLIENT_ID, body)) for key, body in bodies.items()]


def check(step: ApiKey, answer: bytearray) -> None:
    """Raises ConnectionError when the broker does not take them."""
    body = codec.read_response(step, _VERSION, answer)
    if body.error_code != ErrorCode.NONE:
        raise ConnectionError(f"it refuses the client's credentials (error {body.error_code})")
