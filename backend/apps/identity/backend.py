"""Signing in through Keycloak: mozilla-django-oidc's flow, with users identified by their subject."""

import hmac
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.core.exceptions import SuspiciousOperation
from mozilla_django_oidc.auth import OIDCAuthenticationBackend
from requests.exceptions import HTTPError

from backend.apps.identity.services import user_from_claims
from backend.apps.identity.tokens import InvalidTokenError, verified_claims
from backend.apps.workspaces.models import User


class SessionEndedError(Exception):
    """The provider no longer accepts a session: it was ended, it expired, or the user may not sign in."""


class KeycloakBackend(OIDCAuthenticationBackend):  # type: ignore[misc]
    """Checks issuer, audience, expiry and nonce of the ID token."""

    def verify_token(self, token: str, **kwargs: Any) -> dict[str, Any]:
        claims = _verified(token, audience=settings.OIDC_RP_CLIENT_ID)
        if not hmac.compare_digest(str(claims.get("nonce")), str(kwargs.get("nonce"))):
            raise SuspiciousOperation("The ID token was issued for another sign-in.")
        return claims

    def get_token(self, payload: dict[str, Any]) -> dict[str, Any]:
        tokens: dict[str, Any] = super().get_token(payload)
        self._refresh_token = str(tokens.get("refresh_token", ""))
        return tokens

    def get_or_create_user(self, access_token: str, id_token: str, payload: dict[str, Any]) -> User:
        self.request.session["oidc_sid"] = payload.get("sid", "")
        self.request.oidc_refresh_token = self._refresh_token  # for the view, which has the session key
        return self._user(access_token, payload)

    def renewed(self, refresh_token: str) -> dict[str, Any]:
        """New tokens. Raises SessionEndedError, and RequestException when the provider is unavailable."""
        try:
            return self.get_token(
                {
                    "client_id": self.OIDC_RP_CLIENT_ID,
                    "client_secret": self.OIDC_RP_CLIENT_SECRET,
                    "grant_type": "refresh_token",
                    "refresh_token": refresh_token,
                }
            )
        except HTTPError as error:
            answer = error.response
            if answer is not None and answer.status_code == HTTPStatus.BAD_REQUEST and "invalid_grant" in answer.text:
                raise SessionEndedError from None
            raise

    def follow_roles(self, subject: str, tokens: dict[str, Any]) -> None:
        """Updates the user's memberships from the renewed tokens. Raises SuspiciousOperation, and
        RequestException when the provider is unavailable."""
        id_token = tokens.get("id_token")  # which a refresh need not return
        payload = _verified(id_token, audience=settings.OIDC_RP_CLIENT_ID) if id_token else {"sub": subject}
        if payload["sub"] != subject:
            raise SuspiciousOperation("The renewed ID token belongs to another user.")
        self._user(tokens["access_token"], payload)

    def _user(self, access_token: str, payload: dict[str, Any]) -> User:
        userinfo = self.get_userinfo(access_token, "", payload)
        if userinfo.get("sub") != payload["sub"]:
            raise SuspiciousOperation("The user information belongs to another user.")
        # Keycloak puts realm roles into the access token unless a mapper is configured.
        granted = _verified(access_token, audience=None)
        return user_from_claims(payload, userinfo, granted)


def _verified(token: str, *, audience: str | None) -> dict[str, Any]:
    try:
        return verified_claims(token, audience=audience)
    except InvalidTokenError as error:
        raise SuspiciousOperation(str(error)) from None
