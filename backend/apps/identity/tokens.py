"""Tokens of the identity provider: signed by its keys, issued by it, for this audience, and not expired."""

from functools import lru_cache
from typing import Any

import jwt
from django.conf import settings

_ALGORITHMS = ["RS256", "PS256", "ES256"]
_LEEWAY_SECONDS = 30
_KEYS_KEPT_SECONDS = 300
_REFETCH_SECONDS = 5
"""The shortest time between fetches, whatever keys tokens name."""


class InvalidTokenError(Exception):
    """A rejected token; the message gives the reason without the token."""


def verified_claims(token: str, *, audience: str | None) -> dict[str, Any]:
    """The token's claims. Keys are fetched once, cached for five minutes, and fetched again when a token
    names an unknown key. Raises InvalidTokenError."""
    try:
        key = _keys().get_signing_key_from_jwt(token)
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=_ALGORITHMS,
            audience=audience,
            issuer=settings.CONSOLE.oidc_issuer,
            leeway=_LEEWAY_SECONDS,
            options={"require": ["iss", "sub", "iat"], "verify_aud": audience is not None},
        )
    except jwt.PyJWKClientConnectionError:
        raise InvalidTokenError("The identity provider does not answer; try again.") from None
    except jwt.PyJWTError as error:
        raise InvalidTokenError(f"The token is not accepted: {error}.") from None
    return claims


@lru_cache
def _keys() -> jwt.PyJWKClient:
    address = f"{settings.CONSOLE.oidc_issuer}/protocol/openid-connect/certs"
    return jwt.PyJWKClient(
        address, cache_jwk_set=True, lifespan=_KEYS_KEPT_SECONDS, timeout=5, cooldown_duration=_REFETCH_SECONDS
    )
