"""Access to Google Cloud."""

import asyncio
from typing import Any, Literal

from cryptography.hazmat.primitives import serialization
from pydantic import Field, SecretStr, field_validator

from backend.domain import json
from backend.domain.model import StrictModel
from backend.network.outbound import outbound_policy


class ServiceAccount(StrictModel):
    """A Google service account."""

    type: Literal["service_account"] = "service_account"
    key: SecretStr = Field(description="Key file of the service account, in JSON format.")

    @field_validator("key")
    @classmethod
    def _check_key(cls, key: SecretStr) -> SecretStr:
        try:
            document = json.loads(key.get_secret_value().encode())
            serialization.load_pem_private_key(document["private_key"].encode(), None)
            complete = bool(document["client_email"]) and document["type"] == "service_account"
        except (json.InvalidJsonError, KeyError, TypeError, ValueError, AttributeError):
            complete = False
        if not complete:
            raise ValueError("Enter the whole JSON key file of a service account.")
        return key

    def credentials(self, *scopes: str) -> Any:
        """Tokens are signed here: an address in the key file is never connected to."""
        from google.oauth2.service_account import Credentials

        document = json.loads(self.key.get_secret_value().encode())
        known = {name: document[name] for name in ("client_email", "private_key", "private_key_id") if name in document}
        info = known | {"token_uri": "https://oauth2.googleapis.com/token"}
        signing = {"scopes": scopes, "always_use_jwt_access": True} if scopes else {}
        return Credentials.from_service_account_info(info, **signing)  # type: ignore[no-untyped-call]


class Emulator(StrictModel):
    """An emulator, without login and encryption."""

    type: Literal["emulator"] = "emulator"
    endpoint: str = Field(
        pattern=r"^[^\s,:/]+:\d+$", description="Address of the emulator, as host:port.", examples=["localhost:8085"]
    )

    @property
    def host(self) -> str:
        return self.endpoint.rpartition(":")[0]

    async def target(self) -> str:
        """The address to connect to, as host:port. Raises ForbiddenAddressError, and OSError for an unknown host."""
        address = await asyncio.to_thread(outbound_policy().address_of, self.host)
        port = self.endpoint.rpartition(":")[2]
        return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
