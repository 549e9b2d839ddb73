from django.conf import settings
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.apps.demo.api.serializers import GeneratorSerializer
from backend.apps.demo.services import SLUG, generator_rate, generator_set_rate
from backend.apps.workspaces.api.base import workspace_of


class GeneratorView(APIView):
    """The demo's message generator, in the embedded installation only. It is set in the demo's workspace."""

    @extend_schema(responses=GeneratorSerializer)
    def get(self, request: Request) -> Response:
        _check_embedded()
        return _answer(generator_rate())

    @extend_schema(request=GeneratorSerializer, responses=GeneratorSerializer)
    def put(self, request: Request) -> Response:
        _check_embedded()
        serializer = GeneratorSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        if workspace_of(request).slug != SLUG:
            raise Http404
        generator_set_rate(serializer.validated_data["rate"])
        return _answer(serializer.validated_data["rate"])


def _answer(rate: int) -> Response:
    return Response({"rate": rate, "workspace": SLUG})


def _check_embedded() -> None:
    """Raises Http404."""
    if not settings.CONSOLE.embedded:
        raise Http404
