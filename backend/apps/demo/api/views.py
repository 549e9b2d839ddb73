from django.conf import settings
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.apps.demo.api.serializers import GeneratorSerializer
from backend.apps.demo.services import generator_rate, generator_set_rate


class GeneratorView(APIView):
    """The demo's message generator, in the embedded installation only."""

    @extend_schema(responses=GeneratorSerializer)
    def get(self, request: Request) -> Response:
        _only_embedded()
        return Response({"rate": generator_rate()})

    @extend_schema(request=GeneratorSerializer, responses=GeneratorSerializer)
    def put(self, request: Request) -> Response:
        _only_embedded()
        serializer = GeneratorSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        generator_set_rate(serializer.validated_data["rate"])
        return Response(serializer.data)


def _only_embedded() -> None:
    if not settings.CONSOLE.embedded:
        raise Http404
