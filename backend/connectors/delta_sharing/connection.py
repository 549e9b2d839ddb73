"""The connection: a profile file, as the provider of the data hands it out."""

from typing import Any

from pydantic import Field, HttpUrl, SecretStr, TypeAdapter, ValidationError, field_validator

from backend.connectors.parts.tls import HttpsFields
from backend.domain import json
from backend.domain.capabilities import Connection
from backend.domain.http_text import check_value
from backend.domain.model import StrictModel

_URL: TypeAdapter[HttpUrl] = TypeAdapter(HttpUrl)
_INVALID = (
    "Enter the whole profile file, with shareCredentialsVersion, endpoint and bearerToken. Profiles with another "
    "login than a bearer token are not supported."
)


class SharingProfile(StrictModel):
    """A profile file of Delta Sharing."""

    file: SecretStr = Field(
        description="Content of the profile file (.share), in JSON format, as the provider hands it out."
    )

    @field_validator("file")
    @classmethod
    def _check_file(cls, file: SecretStr) -> SecretStr:
        try:
            profile = json.loads(file.get_secret_value())
            valid = (
                profile["shareCredentialsVersion"] in (1, 2) and profile.get("type", "bearer_token") == "bearer_token"
            )
            check_value(profile["bearerToken"])
            address = _URL.validate_python(profile["endpoint"])
            valid = valid and bool(profile["bearerToken"]) and not address.username and not address.password
        except (ValueError, KeyError, TypeError, AttributeError, ValidationError):
            valid = False
        if not valid:
            raise ValueError(_INVALID)
        return file

    @property
    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.file.get_secret_value())
        return content

    @property
    def endpoint(self) -> str:
        """Without a slash at its end."""
        return str(self._content["endpoint"]).rstrip("/")

    @property
    def host(self) -> str:
        return _URL.validate_python(self._content["endpoint"]).host or ""

    @property
    def token(self) -> str:
        return str(self._content["bearerToken"])

    @property
    def expires_at(self) -> str:
        """As the provider wrote it; empty when it does not expire."""
        return str(self._content.get("expirationTime") or "")


class _Provider(Connection):
    profile: SharingProfile = Field(description="Profile file with the provider's address and the token.")


class DeltaSharingConnection(HttpsFields, _Provider):  # in this order of bases, forms begin with the profile
    """A provider of shared tables."""

    def hosts(self) -> dict[str, list[str]]:
        return {"profile": [self.profile.host]}
