"""The connection: an address, and secrets that sign what is sent there."""

from pydantic import Field, SecretStr, field_validator

from backend.connectors.parts.http_address import HttpAddress
from backend.domain import webhook_signature


class HttpConnection(HttpAddress):
    """An HTTP endpoint."""

    signing_secrets: dict[str, SecretStr] = Field(
        default_factory=dict,
        description="Secrets that sign each message as Standard Webhooks defines it, by a name of your choice. "
        "With several, each signs: add the new one, change the receiver, then remove the old one.",
        examples=[{"2026": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}],
    )

    @field_validator("signing_secrets")
    @classmethod
    def _check_secrets(cls, secrets: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for secret in secrets.values():
            webhook_signature.key_of(secret.get_secret_value())
        return secrets
