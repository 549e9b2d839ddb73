from django.db.models import QuerySet
from django.utils.decorators import method_decorator
from django.views.decorators.csrf import ensure_csrf_cookie
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, viewsets
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.apps.workspaces.api.base import actor_of, workspace_of
from backend.apps.workspaces.api.serializers import ApiKeySerializer, MeSerializer
from backend.apps.workspaces.models import ApiKey, Role
from backend.apps.workspaces.selectors import memberships_of
from backend.apps.workspaces.services import api_key_create, api_key_revoke


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
