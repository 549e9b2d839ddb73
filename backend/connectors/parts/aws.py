"""Sign-in to Amazon Web Services and compatible servers, and their clients."""

import asyncio
import contextlib
import io
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field, HttpUrl, SecretStr

from backend.connectors.parts.authentication import NoAuthentication
from backend.connectors.parts.connection_text import connection_text
from backend.connectors.parts.field_error import FieldError, field_of
from backend.connectors.parts.tls import Certificates
from backend.domain.capabilities import Connection, DeliveryError
from backend.domain.connector import CheckFailedError
from backend.domain.model import ADVANCED, StrictModel
from backend.domain.reasons import Reason
from backend.network.guarded_sockets import GuardedSockets

_REJECTED = {
    "403",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "IncompleteSignatureException",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "InvalidToken",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "OptInRequired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
_DENIED = {"AccessDenied", "AccessDeniedException"}
_THROTTLED = {
    "KMSThrottlingException",
    "LimitExceededException",
    "OverLimit",
    "ProvisionedThroughputExceededException",
    "RequestThrottled",
    "Throttling",
    "ThrottlingException",
}

_LONGEST = 500
"""Of what is shown of an answer, which may be a proxy's page."""
_reading = threading.Lock()

Meaning = Callable[[str, str], DeliveryError | None]
"""What an error means to a service, by its code and its text, which ends without a full stop; None for whatever is
the same for all."""


class AccessKey(StrictModel):
    """An access key."""

    type: Literal["access_key"] = "access_key"
    access_key_id: str = Field(min_length=1, description="ID of the access key.", examples=["AKIAIOSFODNN7EXAMPLE"])
    secret_access_key: SecretStr = Field(min_length=1, description="The secret of the access key.")
    session_token: SecretStr | None = Field(
        None, description="Token of temporary credentials.", json_schema_extra=ADVANCED
    )


Access = Annotated[AccessKey | NoAuthentication, Field(discriminator="type")]
Region = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$")]


class AwsConnection(Connection):
    """What every service has in common."""

    region: Region = Field("us-east-1", description="Region of the service.", examples=["sa-east-1"])
    endpoint: HttpUrl | None = Field(
        None,
        description="Address of a compatible server or of a private endpoint. Without it, that of Amazon's region.",
        examples=["https://vpce-0a1b2c3d.sqs.us-east-1.vpce.amazonaws.com"],
    )
    access: Access = Field(description="How Headrace identifies itself.")
    ca: Certificates = Field(
        "",
        description="Certificates of the authorities that may sign the server's certificate, in PEM format. Without "
        "them, those that are publicly trusted.",
        json_schema_extra=ADVANCED,
    )

    def hosts(self) -> dict[str, list[str]]:
        return {"endpoint": [self.endpoint.host or ""]} if self.endpoint else {}


class AwsClient:
    """A client of one service. Made, used and closed on one event loop.

    ``name`` is what messages call the service. A call that takes longer
    than ``seconds`` has failed; ``config`` are further settings of the library.
    """

    def __init__(self, connection: AwsConnection, service: str, name: str, *, seconds: float, **config: Any) -> None:
        self._connection = connection
        self._service = service
        self._name = name
        self._seconds = seconds
        self._config = config
        self._sockets = GuardedSockets()
        self._closing = contextlib.AsyncExitStack()

    async def open(self) -> Any:
        """The library's client, which signs its requests unless the connection has no authentication."""
        from aiobotocore.config import AioConfig
        from botocore import UNSIGNED

        connection = self._connection
        credentials = _credentials(connection)
        config = AioConfig(
            # Without it, the library would look for credentials of this machine.
            signature_version=None if credentials else UNSIGNED,
            connector_args={"socket_factory": self._sockets},
            connect_timeout=self._seconds,
            read_timeout=self._seconds,
            retries={"total_max_attempts": 2},
            proxies={},
            **self._config,
        )
        session = await asyncio.to_thread(_session_that_knows, self._service)
        client = await self._closing.enter_async_context(
            session.create_client(
                self._service,
                region_name=connection.region,
                endpoint_url=str(connection.endpoint) if connection.endpoint else None,
                verify=self._authorities(),
                config=config,
                **credentials,
            )
        )
        client.meta.events.register("before-send", _stream_body)
        return client

    async def close(self) -> None:
        await self._closing.aclose()

    @contextmanager
    def as_delivery_errors(self, meaning: Meaning = lambda code, text: None) -> Iterator[None]:
        from aiohttp import ClientError
        from botocore import exceptions

        try:
            yield
        except exceptions.ClientError as error:
            raise self._refusal(error.response, meaning) from None
        except (exceptions.BotoCoreError, ClientError, TimeoutError) as error:
            raise self._failure(error) from None

    def _failure(self, error: Exception) -> FieldError:
        """No answer."""
        from aiohttp import ClientConnectorDNSError
        from botocore import exceptions

        cause = error.kwargs.get("error") if isinstance(error, exceptions.BotoCoreError) else error
        host = self._connection.endpoint.host if self._connection.endpoint else f"Amazon {self._name}"
        if self._sockets.forbidden:
            return FieldError.at("endpoint", Reason.FORBIDDEN, self._sockets.forbidden, retryable=False)
        if isinstance(error, exceptions.ReadTimeoutError | exceptions.ConnectTimeoutError | TimeoutError):
            return FieldError.at("endpoint", Reason.TIMEOUT, f"{host} does not answer in time.")
        if isinstance(cause, ClientConnectorDNSError):
            return FieldError.at("endpoint", Reason.DNS, f"The host {host} is not known: check its spelling.")
        if isinstance(error, exceptions.SSLError):
            text = f"The certificate of {host} is not trusted, or it speaks no TLS: {connection_text(cause or error)}."
            return FieldError.at("endpoint", Reason.TLS, text)
        return FieldError.at(
            "endpoint", Reason.CONNECTION, f"No connection to {host}: {connection_text(cause or error)}."
        )

    def _refusal(self, answer: dict[str, Any], meaning: Meaning) -> DeliveryError:
        code, text = answer["Error"].get("Code", ""), answer["Error"].get("Message", "")[:_LONGEST].rstrip(".")
        refusal = meaning(code, text)
        if refusal is not None:
            return refusal
        if code in _REJECTED | _DENIED:
            text = f"{self._name} does not permit this: {text} ({code})."
            denied = FieldError.at("access", Reason.CONFIGURATION, text)
            denied.status = code
            return denied
        retryable = answer["ResponseMetadata"]["HTTPStatusCode"] >= 500 or code in _THROTTLED
        # Older codes are dotted paths.
        reason = f"{self._service}_{code.rpartition('.')[2].lower()}"
        return DeliveryError(reason, f"{self._name}: {text} ({code}).", retryable=retryable)

    def _authorities(self) -> str | bool:
        """The library takes a file, which exists as long as the connection."""
        if not self._connection.ca:
            return True
        temporary = tempfile.NamedTemporaryFile("w", prefix="headrace-", suffix=".pem")  # noqa: SIM115
        file = self._closing.enter_context(temporary)
        file.write(self._connection.ca)
        file.flush()
        return file.name


async def check_login(client: AwsClient, call: Callable[[Any], Awaitable[Any]], name: str) -> str:
    """A sentence for a connection test, which makes that call. Raises CheckFailedError."""
    try:
        service = await client.open()
        with client.as_delivery_errors():
            await call(service)
    except DeliveryError as error:
        if error.status in _DENIED:  # the login works, and its user may not do this
            return f"Connected; the access key may not list {name}, which is not needed."
        raise CheckFailedError(str(error), field=field_of(error) or "endpoint") from None
    finally:
        await client.close()
    return f"Connected; the access key may list {name}."


def _credentials(connection: AwsConnection) -> dict[str, str | None]:
    access = connection.access
    if not isinstance(access, AccessKey):
        return {}
    token = access.session_token
    return {
        "aws_access_key_id": access.access_key_id,
        "aws_secret_access_key": access.secret_access_key.get_secret_value(),
        "aws_session_token": token.get_secret_value() if token else None,
    }


def _stream_body(request: Any, **_: Any) -> None:
    """Bytes that are sent as a whole would hold up the event loop."""
    if isinstance(request.body, bytes):
        request.body = io.BytesIO(request.body)


@lru_cache
def _session() -> Any:
    from aiobotocore.session import AioSession

    return AioSession()


def _session_that_knows(service: str) -> Any:
    """The library's session, which holds its descriptions of the APIs. Reading one takes longer than all else, so it is
    not done on an event loop, and those that need it at the same time wait for the first: each would read it for
    itself."""
    with _reading:
        loader = _session().get_component("data_loader")
        for description in ("service-2", "endpoint-rule-set-1"):
            loader.load_service_model(service, description, api_version=None)
    return _session()
