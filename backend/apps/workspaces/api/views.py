from django.contrib.auth import authenticate, login, logout
from django.db.models import QuerySet
from django.utils.decorators import method_decorator
from django.views.decorators.csrf import csrf_protect, ensure_csrf_cookie
from drf_spectacular.utils import extend_schema
from rest_framework import exceptions, mixins, viewsets
from rest_framework.permissions import AllowAny, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.apps.workspaces.api.base import actor_of, workspace_of
from backend.apps.workspaces.api.serializers import ApiKeySerializer, LoginSerializer, MeSerializer
from backend.apps.workspaces.models import ApiKey, Role, User
from backend.apps.workspaces.selectors import memberships_of
from backend.apps.workspaces.services import api_key_create, api_key_revoke, session_record


@method_decorator(csrf_protect, name="dispatch")
class SessionView(APIView):
    """Signing in and out with a local account."""

    permission_classes = [AllowAny]

    @extend_schema(request=LoginSerializer, responses={204: None})
    def post(self, request: Request) -> Response:
        """Sign in; the answer sets the session cookie."""
        wanted = LoginSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        user = authenticate(request, **wanted.validated_data)
        if not isinstance(user, User):
            session_record(action="session.refused", username=wanted.validated_data["username"])
            raise exceptions.ValidationError({"password": "User name or password is wrong."})
        login(request, user)
        session_record(action="session.sign_in", username=user.username)
        return Response(status=204)

    @extend_schema(responses={204: None})
    def delete(self, request: Request) -> Response:
        """Sign out."""
        if request.user.is_authenticated:
            session_record(action="session.sign_out", username=request.user.username)
        logout(request)
        return Response(status=204)


@method_decorator(ensure_csrf_cookie, name="dispatch")
class MeView(APIView):
    """Who is signed in."""

    permission_classes = [IsAuthenticated]

    @extend_schema(responses=MeSerializer)
    def get(self, request: Request) -> Response:
        workspaces = [
            {"slug": m.workspace.slug, "name": m.workspace.name, "role": m.role}
            for m in memberships_of(actor_of(request))
        ]
        return Response(MeSerializer({"username": request.user.get_username(), "workspaces": workspaces}).data)


class ApiKeyViewSet(
    mixins.ListModelMixin, mixins.CreateModelMixin, mixins.DestroyModelMixin, viewsets.GenericViewSet[ApiKey]
):
    """API keys of the workspace. Deleting one revokes it."""

    serializer_class = ApiKeySerializer
    queryset = ApiKey.objects.none()
    roles = {"list": Role.ADMIN, "create": Role.ADMIN, "destroy": Role.ADMIN}

    def get_queryset(self) -> QuerySet[ApiKey]:
        return ApiKey.objects.filter(workspace=workspace_of(self.request))

    def create(self, request: Request, *args: object, **kwargs: object) -> Response:
        """Create a key. Its text is in this answer and nowhere else."""
        wanted = self.get_serializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        key, text = api_key_create(workspace=workspace_of(request), actor=actor_of(request), **wanted.validated_data)
        return Response(self.get_serializer(key).data | {"key": text}, status=201)

    def perform_destroy(self, instance: ApiKey) -> None:
        api_key_revoke(key=instance, actor=actor_of(self.request))
