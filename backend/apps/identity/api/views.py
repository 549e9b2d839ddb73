from django.conf import settings
from django.contrib.auth import authenticate, login, logout
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.csrf import csrf_protect, ensure_csrf_cookie
from drf_spectacular.utils import extend_schema
from rest_framework import exceptions
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.apps.identity.api.serializers import LoginSerializer, SignedOutSerializer, SignInOptionsSerializer
from backend.apps.identity.services import session_record
from backend.apps.identity.views import provider_logout_url
from backend.apps.workspaces.models import User

_LOGIN_PAGE = "/login"


@method_decorator(csrf_protect, name="dispatch")
@method_decorator(ensure_csrf_cookie, name="dispatch")
class SessionView(APIView):
    """Signing in and out."""

    permission_classes = [AllowAny]

    @extend_schema(responses=SignInOptionsSerializer)
    def get(self, request: Request) -> Response:
        """How people sign in to this installation."""
        provider_url = reverse("oidc_authentication_init") if settings.CONSOLE.oidc_issuer else None
        return Response({"local": settings.CONSOLE.local_login, "provider_url": provider_url})

    @extend_schema(request=LoginSerializer, responses={204: None})
    def post(self, request: Request) -> Response:
        """Sign in with a local account; the answer sets the session cookie."""
        if not settings.CONSOLE.local_login:
            raise exceptions.PermissionDenied("Local accounts are switched off: sign in through the identity provider.")
        serializer = LoginSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        user = authenticate(request, **serializer.validated_data)
        if not isinstance(user, User):
            session_record(action="session.refused", username=serializer.validated_data["username"])
            raise exceptions.ValidationError({"password": "User name or password is wrong."})
        login(request, user)
        session_record(action="session.sign_in", username=user.username)
        return Response(status=204)

    @extend_schema(responses={200: SignedOutSerializer})
    def delete(self, request: Request) -> Response:
        """Sign out."""
        redirect = _LOGIN_PAGE
        if request.user.is_authenticated:
            session_record(action="session.sign_out", username=request.user.username)
            if "oidc_sid" in request.session:
                redirect = provider_logout_url(request)
        logout(request)
        return Response({"redirect": redirect})
