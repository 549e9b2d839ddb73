from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.apps.config_files import services
from backend.apps.config_files.api.serializers import ApplySerializer, StepSerializer
from backend.apps.workspaces.api.base import actor_of, workspace_of


class ConfigFilesView(APIView):
    """The workspace's connectors and pipelines as YAML: export the current state, or apply a desired one."""

    @extend_schema(responses={(200, "application/yaml"): OpenApiTypes.STR})
    def get(self, request: Request) -> HttpResponse:
        """Export everything, with secrets as references to environment variables.

        What cannot be read is left out: a document of the kind left_out names it, with the reason.
        """
        text = services.dump(services.export(workspace_of(request)))
        return HttpResponse(text, content_type="application/yaml; charset=utf-8")

    @extend_schema(request=ApplySerializer, responses=StepSerializer(many=True))
    def post(self, request: Request) -> Response:
        """Apply all documents, or none if any is rejected. Without dry_run=false, only return the plan.

        References are resolved from the environment of the console's server.
        """
        serializer = ApplySerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        steps = services.apply(
            workspace=workspace_of(request),
            actor=actor_of(request),
            documents=services.parse(serializer.validated_data["yaml"]),
            prune=serializer.validated_data["prune"],
            dry_run=serializer.validated_data["dry_run"],
        )
        return Response(StepSerializer(steps, many=True).data)
