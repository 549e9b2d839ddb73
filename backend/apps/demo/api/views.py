from django.conf import settings
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.apps.demo.services import MOST_PER_SECOND, generator_rate, generator_set_rate
from backend.apps.workspaces.api.strict import StrictSerializer


class GeneratorSerializer(StrictSerializer):
    rate = serializers.IntegerField(
        min_value=0, max_value=MOST_PER_SECOND, help_text="Messages per second to each demo pipeline; 0 is off."
    )


class GeneratorView(APIView):
    """The demo's generator of messages. Exists in the embedded installation only."""

    @extend_schema(responses=GeneratorSerializer)
    def get(self, request: Request) -> Response:
        _only_embedded()
        return Response({"rate": generator_rate()})

    @extend_schema(request=GeneratorSerializer, responses=GeneratorSerializer)
    def put(self, request: Request) -> Response:
        _only_embedded()
        wanted = GeneratorSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        generator_set_rate(wanted.validated_data["rate"])
        return Response(wanted.data)


def _only_embedded() -> None:
    if not settings.CONSOLE.embedded:
        raise Http404
