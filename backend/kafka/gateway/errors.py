"""Errors that are answers to clients."""

from backend.kafka.wire.api import ErrorCode


class KafkaError(Exception):
    """An error code of the protocol, with a sentence where the protocol has a place for one."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message
