import logging
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from mozilla_django_oidc.views import OIDCAuthenticationCallbackView
from requests.exceptions import RequestException

from backend.apps.identity.models import ProviderSession
from backend.apps.identity.renewal import provider_session_begin
from backend.apps.identity.services import provider_sessions_end, session_record
from backend.apps.identity.tokens import InvalidTokenError, verified_claims

log = logging.getLogger(__name__)

_BACK_CHANNEL = "http://schemas.openid.net/event/backchannel-logout"


class CallbackView(OIDCAuthenticationCallbackView):  # type: ignore[misc]
    """The redirect target of the provider. Any failure leads to the login page, which reports it."""

    failure_url = "/login?failed=provider"

    def get(self, request: HttpRequest) -> HttpResponse:
        try:
            answer: HttpResponse = super().get(request)
        except (SuspiciousOperation, RequestException) as error:
            log.warning("A sign-in failed: %s", type(error).__name__ if isinstance(error, RequestException) else error)
            answer = self.login_failure()
        return answer

    def login_success(self) -> HttpResponse:
        answer: HttpResponse = super().login_success()
        session = self.request.session
        provider_session_begin(
            session_key=session.session_key,
            sid=session.get("oidc_sid", ""),
            subject=self.user.subject,
            refresh_token=self.request.oidc_refresh_token,
        )
        session_record(action="session.sign_in", username=self.user.username)
        return answer


@csrf_exempt
@require_POST
def backchannel_logout(request: HttpRequest) -> HttpResponse:
    """OpenID Connect Back-Channel Logout 1.0: the provider ended a session, so the console's ends at once."""
    try:
        claims = verified_claims(request.POST.get("logout_token", ""), audience=settings.OIDC_RP_CLIENT_ID)
    except InvalidTokenError as error:
        return _rejected(str(error))
    if _BACK_CHANNEL not in claims.get("events", {}) or "nonce" in claims:
        return _rejected("This is not a logout token.")
    session_filter = {"sid": claims["sid"]} if claims.get("sid") else {"subject": claims.get("sub")}
    provider_sessions_end(ProviderSession.objects.filter(**session_filter))
    return HttpResponse(status=200, headers={"Cache-Control": "no-store"})


def provider_logout_url(request: HttpRequest) -> str:
    """The address at which the browser ends the provider's session too."""
    query: dict[str, Any] = {
        "client_id": settings.OIDC_RP_CLIENT_ID,
        "post_logout_redirect_uri": f"{settings.CONSOLE.public_url}/login",
    }
    if token := request.session.get("oidc_id_token"):
        query["id_token_hint"] = token
    return f"{settings.CONSOLE.oidc_issuer}/protocol/openid-connect/logout?{urlencode(query)}"


def _rejected(why: str) -> JsonResponse:
    return JsonResponse({"error": "invalid_request", "error_description": why}, status=400)
