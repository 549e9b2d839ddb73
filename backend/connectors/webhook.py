import base64
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SecretStr, field_validator

from backend.connectors.parts import authentication
from backend.domain import webhook_signature
from backend.domain.capabilities import Connection, Options, VerificationError, Verify
from backend.domain.connector import Connector, connectors
from backend.domain.http_text import HeaderName, SigningKey, check_value
from backend.domain.model import StrictModel

Headers = Mapping[str, Sequence[str]]


class StandardWebhooks(StrictModel):
    """Standard Webhooks signatures."""

    type: Literal["standard_webhooks"] = "standard_webhooks"
    secrets: dict[str, SecretStr] = Field(
        min_length=1,
        description="Secrets that the sender signs with, by a name of your choice; each is accepted.",
        examples=[{"2026": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}],
    )

    @field_validator("secrets")
    @classmethod
    def _check_secrets(cls, secrets: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for secret in secrets.values():
            webhook_signature.key_of(secret.get_secret_value())
        return secrets

    def verify(self, headers: Headers, body: bytes) -> None:
        keys = [webhook_signature.key_of(secret.get_secret_value()) for secret in self.secrets.values()]
        message_id = _only(headers, webhook_signature.ID_HEADER)
        timestamp = _only(headers, webhook_signature.TIMESTAMP_HEADER)
        signature = " ".join(headers.get(webhook_signature.SIGNATURE_HEADER, ()))
        if not (message_id and timestamp and signature):
            raise VerificationError("The headers webhook-id, webhook-timestamp and webhook-signature are needed.")
        if not webhook_signature.is_valid(keys, message_id, timestamp, signature, body):
            raise VerificationError("The signature does not match, or its timestamp is more than 5 minutes off.")


class HmacHeader(StrictModel):
    """An HMAC of the body in a header, as GitHub, Shopify and many others send it."""

    type: Literal["hmac"] = "hmac"
    header: HeaderName = Field(description="Header that holds the signature.", examples=["X-Hub-Signature-256"])
    secret: SigningKey = Field(min_length=1, description="Secret that the sender signs with.")
    algorithm: Literal["sha256", "sha512", "sha1"] = Field("sha256", description="Hash of the HMAC.")
    encoding: Literal["hex", "base64"] = Field("hex", description="How the signature is written.")
    prefix: Annotated[str, AfterValidator(check_value)] = Field(
        "", description="Text before the signature in the header.", examples=["sha256="]
    )

    def verify(self, headers: Headers, body: bytes) -> None:
        digest = hmac.new(self.secret.get_secret_value().encode(), body, getattr(hashlib, self.algorithm)).digest()
        written = digest.hex() if self.encoding == "hex" else base64.b64encode(digest).decode()
        if not _is_among(map(self._signature, headers.get(self.header.lower(), ())), self.prefix + written):
            raise VerificationError(f"The signature in the header {self.header} does not match the body.")

    def _signature(self, given: str) -> str:
        """As it is compared: hexadecimal digits may be capital letters."""
        prefix, digits = given[: len(self.prefix)], given[len(self.prefix) :]
        return prefix + digits.lower() if self.encoding == "hex" else given


class BasicAuthentication(authentication.BasicAuthentication):
    """A user name and password."""

    password: SecretStr = Field(min_length=1, description="Password.")

    def verify(self, headers: Headers, body: bytes) -> None:
        if not _is_among(headers.get("authorization", ()), self.header()):
            raise VerificationError("The user name or the password is wrong.")


class BearerAuthentication(authentication.BearerAuthentication):
    """A bearer token."""

    def verify(self, headers: Headers, body: bytes) -> None:
        if not _is_among(headers.get("authorization", ()), self.header()):
            raise VerificationError("The bearer token is wrong.")


class WebhookConnection(Connection):
    """How a sender of webhooks authenticates itself."""

    scheme: Annotated[
        StandardWebhooks | HmacHeader | BasicAuthentication | BearerAuthentication, Field(discriminator="type")
    ] = Field(description="How each request is verified.")


class WebhookVerify(Verify[WebhookConnection, Options]):
    computes_only = True

    def verify(self, headers: Headers, body: bytes) -> None:
        self.connection.scheme.verify(headers, body)


def _only(headers: Headers, name: str) -> str:
    """The header's value; empty when there is none, or when it is not clear which one was signed."""
    values = headers.get(name, ())
    return values[0] if len(values) == 1 else ""


def _is_among(given: Iterable[str], expected: str) -> bool:
    """Compares values of a header as they arrived, an octet for each character, with a text that is sent as UTF-8."""
    return any(hmac.compare_digest(value.encode("latin-1", "replace"), expected.encode()) for value in given)


@connectors.register
class WebhookSource(Connector):
    """Verifies webhooks that another system sends to a pipeline."""

    type = "webhook"
    title = "Incoming webhooks"
    connection_model = WebhookConnection
    capabilities = (WebhookVerify,)
    example = {"scheme": {"type": "standard_webhooks", "secrets": {"2026": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}}

    @staticmethod
    async def check(connection: Any) -> str:
        """Nothing to connect to: the sender connects to Headrace."""
        return "Complete. Choose it as the verification of a pipeline's input; the sender's first request proves it."
