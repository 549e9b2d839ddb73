import csv
import json

from django.db.models import QuerySet
from django.http import HttpResponse
from django.utils.decorators import method_decorator
from django.views.decorators.csrf import ensure_csrf_cookie
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, viewsets
from rest_framework.decorators import action
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView

from backend.apps.audit.models import AuditEntry
from backend.apps.rest.pagination import CountedByNewest
from backend.apps.workspaces.api.base import actor_of, workspace_of
from backend.apps.workspaces.api.filters import AuditFilter
from backend.apps.workspaces.api.serializers import (
    ApiKeySerializer,
    AuditEntrySerializer,
    MemberRoleSerializer,
    MemberSerializer,
    MeSerializer,
)
from backend.apps.workspaces.authentication import Access
from backend.apps.workspaces.models import ApiKey, Membership, Role
from backend.apps.workspaces.selectors import memberships_of
from backend.apps.workspaces.services import (
    api_key_create,
    api_key_revoke,
    member_add,
    member_change,
    member_remove,
)

_MOST_EXPORTED = 100_000


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
        access = request.auth
        me = {
            "username": request.user.get_username(),
            "installation_admin": isinstance(access, Access) and access.installation_admin,
            "workspaces": workspaces,
        }
        return Response(MeSerializer(me).data)


class ApiKeyViewSet(
    mixins.ListModelMixin, mixins.CreateModelMixin, mixins.DestroyModelMixin, viewsets.GenericViewSet[ApiKey]
):
    """API keys of the workspace. Deleting one revokes it."""

    serializer_class = ApiKeySerializer
    queryset = ApiKey.objects.none()
    pagination_class = CountedByNewest
    search_fields = ["name", "prefix"]
    roles = {"list": Role.ADMIN, "create": Role.ADMIN, "destroy": Role.ADMIN}

    def get_queryset(self) -> QuerySet[ApiKey]:
        return ApiKey.objects.filter(workspace=workspace_of(self.request)).select_related("created_by").order_by("-pk")

    def create(self, request: Request, *args: object, **kwargs: object) -> Response:
        """Create a key. Its text is only in this response."""
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        key, text = api_key_create(
            workspace=workspace_of(request), actor=actor_of(request), **serializer.validated_data
        )
        return Response(self.get_serializer(key).data | {"key": text}, status=201)

    def perform_destroy(self, instance: ApiKey) -> None:
        api_key_revoke(key=instance, actor=actor_of(self.request))


class MemberViewSet(
    mixins.ListModelMixin, mixins.CreateModelMixin, mixins.DestroyModelMixin, viewsets.GenericViewSet[Membership]
):
    """Who may do what in the workspace."""

    serializer_class = MemberSerializer
    queryset = Membership.objects.none()
    pagination_class = CountedByNewest
    search_fields = ["user__username"]
    roles = {"create": Role.ADMIN, "partial_update": Role.ADMIN, "destroy": Role.ADMIN}

    def get_queryset(self) -> QuerySet[Membership]:
        members = Membership.objects.filter(workspace=workspace_of(self.request))
        return members.select_related("user", "workspace").order_by("user__username", "pk")

    def perform_create(self, serializer: BaseSerializer[Membership]) -> None:
        """Add a user who already has an account."""
        data = serializer.validated_data
        serializer.instance = member_add(
            workspace=workspace_of(self.request),
            actor=actor_of(self.request),
            username=data["user"]["username"],
            role=data["role"],
        )

    @extend_schema(request=MemberRoleSerializer, responses=MemberSerializer)
    def partial_update(self, request: Request, *args: object, **kwargs: object) -> Response:
        """Change a member's role."""
        serializer = MemberRoleSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        member = member_change(
            member=self.get_object(), actor=actor_of(request), role=serializer.validated_data["role"]
        )
        return Response(self.get_serializer(member).data)

    def perform_destroy(self, instance: Membership) -> None:
        member_remove(member=instance, actor=actor_of(self.request))


class AuditViewSet(mixins.ListModelMixin, viewsets.GenericViewSet[AuditEntry]):
    """Who did what in this workspace, newest first."""

    queryset = AuditEntry.objects.none()
    serializer_class = AuditEntrySerializer
    filterset_class = AuditFilter
    search_fields = ["actor", "action", "object_name", "object_id"]
    roles = {"list": Role.ADMIN, "export": Role.ADMIN}

    def get_queryset(self) -> QuerySet[AuditEntry]:
        return AuditEntry.objects.filter(workspace_id=workspace_of(self.request).pk)

    @extend_schema(responses={(200, "text/csv"): OpenApiTypes.STR})
    @action(detail=False, pagination_class=None)
    def export(self, request: Request) -> HttpResponse:
        """The entries as CSV, at most 100,000; changes are JSON."""
        answer = HttpResponse(content_type="text/csv; charset=utf-8")
        answer["Content-Disposition"] = 'attachment; filename="headrace-audit.csv"'
        columns = list(AuditEntrySerializer().fields)
        writer = csv.DictWriter(answer, columns)
        writer.writeheader()
        for entry in self.filter_queryset(self.get_queryset())[:_MOST_EXPORTED]:
            row = AuditEntrySerializer(entry).data
            writer.writerow({**row, "changes": json.dumps(row["changes"])})
        return answer
