"""``Authorization: Bearer`` with a JWT of the identity provider."""

from django.conf import settings
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.request import Request

from backend.apps.identity.services import user_from_claims
from backend.apps.identity.tokens import InvalidTokenError, verified_claims
from backend.apps.workspaces.authentication import Access, access_of
from backend.apps.workspaces.models import User


class JwtAuthentication(BaseAuthentication):
    """The token must be meant for this installation (``aud``); the header ``Headrace-Workspace`` selects
    one of several workspaces."""

    def authenticate(self, request: Request) -> tuple[User, Access] | None:
        scheme, _, token = get_authorization_header(request).decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or token.startswith("hr_") or not settings.CONSOLE.oidc_issuer:
            return None
        try:
            claims = verified_claims(
                token.strip(), audience=settings.CONSOLE.oidc_audience or settings.OIDC_RP_CLIENT_ID
            )
        except InvalidTokenError as error:
            raise exceptions.AuthenticationFailed(str(error)) from None
        user = user_from_claims(claims)
        if not user.is_active:
            raise exceptions.AuthenticationFailed("This account is not active.")
        return user, access_of(user, request)

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"
