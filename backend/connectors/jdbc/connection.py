import re

from pydantic import ConfigDict, Field, SecretStr, field_validator

from backend.domain.capabilities import Connection

URL = "url"
"""The field with the address."""
_HOST = re.compile(r"(?://|@|[?;&(]\s*(?:host|servername)\s*=\s*)(\[[^\]]+\]|[^/:;,?&@\\()\s\[\]]+)", re.IGNORECASE)
_FURTHER_HOST = re.compile(r",\s*(\[[^\]]+\]|[^/:;,?&@\\()=\s\[\]]+)(?=[:,/])")
_PASSWORD = re.compile(r"[?;&:](password|pwd)\s*=|//[^/?;]*:[^/?;]*@|:[^:@/]+/[^@/]+@", re.IGNORECASE)


class JdbcConnection(Connection):
    """A database that is reached by a JDBC driver, which the operator has installed."""

    model_config = ConfigDict(title="JDBC connection")

    url: str = Field(
        max_length=2000,
        pattern=r"^jdbc:[a-z0-9]+:\S+$",
        description="Address as the driver's documentation gives it, with its parameters, but without user name and "
        "password.",
        examples=["jdbc:sqlserver://db.example.com:1433;databaseName=shop"],
    )
    user: str = Field("", description="User name.")
    password: SecretStr = Field(SecretStr(""), description="Password.")

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        if _PASSWORD.search(url):
            raise ValueError("The address must not contain a password: it has a field of its own.")
        return url

    def hosts(self) -> dict[str, list[str]]:
        # As far as addresses have a common form; what the driver connects to is checked as well.
        hosts = _HOST.findall(self.url)
        return {"url": hosts + _FURTHER_HOST.findall(self.url)} if hosts else {}

    @property
    def shown(self) -> str:
        """For people, without parameters."""
        return re.split(r"[?;]", self.url, maxsplit=1)[0]
