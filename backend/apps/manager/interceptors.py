"""What every call to the manager goes through before its method, and what becomes of the method's exceptions."""

import hmac
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any
from uuid import UUID

import grpc
from django.db import DataError, IntegrityError
from django.db import Error as DatabaseError

from backend.apps.connectors.vault import VaultUnavailableError
from backend.domain import json, uuids
from backend.domain.errors import ConflictError

log = logging.getLogger(__name__)


class InvalidRequestError(ValueError):
    """A request that no client of this release makes; the text, a sentence, says what is wrong with it."""


def uuid_of(text: str) -> UUID:
    """Raises InvalidRequestError."""
    known = uuids.parsed(text)
    if known is None:
        raise InvalidRequestError(f"{text[:50]!r} is not a UUID.")
    return known


class ServiceTokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Rejects calls without the installation's service token."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}"

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = await continuation(details)
        presented = str(dict(details.invocation_metadata).get("authorization", ""))
        if handler is None or hmac.compare_digest(presented.encode(), self._expected.encode()):
            return handler

        async def reject(_request: Any, context: Any) -> None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "The service token is missing or wrong.")

        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(reject)
        return grpc.unary_unary_rpc_method_handler(reject)


class FaultInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Turns what a method raises into a status. UNAVAILABLE may succeed later; FAILED_PRECONDITION, INVALID_ARGUMENT
    and INTERNAL will not, and have no text of an exception that was not meant for callers."""

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = await continuation(details)
        if handler is None:  # there is no such method
            return None
        if handler.response_streaming:

            async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
                try:
                    async with aclosing(handler.unary_stream(request, context)) as answers:
                        async for answer in answers:
                            yield answer
                except Exception as error:
                    await _abort(error, details.method, context)

            return grpc.unary_stream_rpc_method_handler(
                stream, handler.request_deserializer, handler.response_serializer
            )

        async def call(request: Any, context: Any) -> Any:
            try:
                return await handler.unary_unary(request, context)
            except Exception as error:
                return await _abort(error, details.method, context)

        return grpc.unary_unary_rpc_method_handler(call, handler.request_deserializer, handler.response_serializer)


async def _abort(error: Exception, method: str, context: Any) -> None:
    """Ends the call with the error's status, by raising."""
    name = type(error).__name__
    match error:
        case grpc.aio.AbortError():  # the method has chosen its status
            raise error
        case ConflictError():
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        case InvalidRequestError():
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        case json.InvalidJsonError():
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"A field that holds JSON does not: {error}")
        case DataError() | IntegrityError():
            log.warning("%s: the database rejected the request: %s", method, error)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"The database rejected the request ({name}).")
        case VaultUnavailableError():
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        case DatabaseError() | OSError() | MemoryError():
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"{name}.")
        case _:
            log.exception("%s failed.", method, exc_info=error)
            text = f"The manager failed unexpectedly ({name}); its log says more."
            await context.abort(grpc.StatusCode.INTERNAL, text)
