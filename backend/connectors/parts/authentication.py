"""HTTP authentication: of Headrace to a system, or of a system to Headrace."""

import base64
from typing import Literal

from pydantic import Field

from backend.domain.http_text import HeaderCredential, Password, UserName
from backend.domain.model import StrictModel


class NoAuthentication(StrictModel):
    """No authentication."""

    type: Literal["none"] = "none"

    def header(self) -> str:
        """The value of the Authorization header; empty for none."""
        return ""


class BearerAuthentication(StrictModel):
    """A bearer token."""

    type: Literal["bearer"] = "bearer"
    token: HeaderCredential = Field(min_length=1, description="Token, sent as 'Authorization: Bearer …'.")

    def header(self) -> str:
        return f"Bearer {self.token.get_secret_value()}"


class BasicAuthentication(StrictModel):
    """A user name and password."""

    type: Literal["basic"] = "basic"
    username: UserName = Field(min_length=1, description="User name.")
    password: Password = Field(description="Password.")

    def header(self) -> str:
        pair = f"{self.username}:{self.password.get_secret_value()}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
