from typing import Annotated

from pydantic import AfterValidator, HttpUrl


def _check(url: HttpUrl) -> HttpUrl:
    if url.username or url.password:
        raise ValueError("An address has neither user name nor password: addresses are shown to everybody.")
    return url


ServerAddress = Annotated[HttpUrl, AfterValidator(_check)]
"""The address of a server's REST API, which has no login in it."""
