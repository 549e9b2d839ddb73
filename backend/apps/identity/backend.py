"""Signing in through Keycloak: mozilla-django-oidc's flow, with people known by their subject."""

import hmac
from typing import Any

from django.conf import settings
from django.core.exceptions import SuspiciousOperation
from mozilla_django_oidc.auth import OIDCAuthenticationBackend

from backend.apps.identity.services import user_from_claims
from backend.apps.identity.tokens import InvalidTokenError, verified_claims
from backend.apps.workspaces.models import User


class KeycloakBackend(OIDCAuthenticationBackend):  # type: ignore[misc]
    """Issuer, audience, expiry and nonce of the ID token are checked."""

    def verify_token(self, token: str, **kwargs: Any) -> dict[str, Any]:
        try:
            claims = verified_claims(token, audience=settings.OIDC_RP_CLIENT_ID)
        except InvalidTokenError as error:
            raise SuspiciousOperation(str(error)) from None
        if not hmac.compare_digest(str(claims.get("nonce")), str(kwargs.get("nonce"))):
            raise SuspiciousOperation("The ID token was made for another sign-in.")
        return claims

    def get_or_create_user(self, access_token: str, id_token: str, payload: dict[str, Any]) -> User:
        userinfo = self.get_userinfo(access_token, id_token, payload)
        if userinfo.get("sub") != payload["sub"]:
            raise SuspiciousOperation("The user information speaks of somebody else.")
        try:
            # Keycloak tells realm roles in the access token unless a mapper is set.
            granted = verified_claims(access_token, audience=None)
        except InvalidTokenError as error:
            raise SuspiciousOperation(str(error)) from None
        self.request.session["oidc_sid"] = payload.get("sid", "")
        return user_from_claims(payload, userinfo, granted)
