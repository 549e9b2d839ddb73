import base64
import hashlib
import hmac
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, field_validator

from backend.connectors.parts import authentication
from backend.domain import webhook_signature
from backend.domain.capabilities import Connection, Options, VerificationError, Verify
from backend.domain.connector import Connector, connectors
from backend.domain.model import StrictModel

Headers = dict[str, str]


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
        message_id = headers.get(webhook_signature.ID_HEADER)
        timestamp = headers.get(webhook_signature.TIMESTAMP_HEADER)
        signature = headers.get(webhook_signature.SIGNATURE_HEADER)
        if not (message_id and timestamp and signature):
            raise VerificationError("The headers webhook-id, webhook-timestamp and webhook-signature are needed.")
        if not webhook_signature.is_valid(keys, message_id, timestamp, signature, body):
            raise VerificationError("The signature does not match, or its timestamp is more than 5 minutes off.")


class HmacHeader(StrictModel):
    """An HMAC of the body in a header, as GitHub, Shopify and many others send it."""

    type: Literal["hmac"] = "hmac"
    header: str = Field(min_length=1, description="Header that holds the signature.", examples=["X-Hub-Signature-256"])
    secret: SecretStr = Field(min_length=1, description="Secret that the sender signs with.")
    algorithm: Literal["sha256", "sha512", "sha1"] = Field("sha256", description="Hash of the HMAC.")
    encoding: Literal["hex", "base64"] = Field("hex", description="How the signature is written.")
    prefix: str = Field("", description="Text before the signature in the header.", examples=["sha256="])

    def verify(self, headers: Headers, body: bytes) -> None:
        digest = hmac.new(self.secret.get_secret_value().encode(), body, getattr(hashlib, self.algorithm)).digest()
        expected = self.prefix + (digest.hex() if self.encoding == "hex" else base64.b64encode(digest).decode())
        if not _same(headers.get(self.header.lower(), ""), expected):
            raise VerificationError(f"The signature in the header {self.header} does not match the body.")


class BasicAuthentication(authentication.BasicAuthentication):
    """A user name and password."""

    password: SecretStr = Field(min_length=1, description="Password.")

    def verify(self, headers: Headers, body: bytes) -> None:
        if not _same(headers.get("authorization", ""), self.header()):
            raise VerificationError("The user name or the password is wrong.")


class BearerAuthentication(authentication.BearerAuthentication):
    """A bearer token."""

    def verify(self, headers: Headers, body: bytes) -> None:
        if not _same(headers.get("authorization", ""), self.header()):
            raise VerificationError("The bearer token is wrong.")


class WebhookConnection(Connection):
    """How a sender of webhooks authenticates itself."""

    scheme: Annotated[
        StandardWebhooks | HmacHeader | BasicAuthentication | BearerAuthentication, Field(discriminator="type")
    ] = Field(description="How each request is verified.")


class WebhookVerify(Verify[WebhookConnection, Options]):
    def verify(self, headers: Headers, body: bytes) -> None:
        self.connection.scheme.verify(headers, body)


def _same(given: str, expected: str) -> bool:
    """Compares a header as it arrived, an octet for each character, with a text that is sent as UTF-8."""
    return hmac.compare_digest(given.encode("latin-1", "replace"), expected.encode())


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
