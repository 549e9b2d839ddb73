import csv
from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.apps.usage.api.serializers import (
    BilledDeliverySerializer,
    BilledQuerySerializer,
    UsageQuerySerializer,
    UsageSerializer,
)
from backend.apps.usage.billed import billed_of
from backend.apps.usage.selectors import usage_of
from backend.apps.workspaces.api.base import workspace_of


def _rows(request: Request) -> list[dict[str, Any]]:
    serializer = UsageQuerySerializer(data=request.query_params)
    serializer.is_valid(raise_exception=True)
    return usage_of(workspace_of(request), **serializer.validated_data)


class UsageView(APIView):
    """Delivered messages by period, pipeline and output."""

    @extend_schema(parameters=[UsageQuerySerializer], responses=UsageSerializer(many=True))
    def get(self, request: Request) -> Response:
        return Response(UsageSerializer(_rows(request), many=True).data)


class BilledDeliveriesView(APIView):
    """The deliveries of one message, each of which is billed once."""

    @extend_schema(parameters=[BilledQuerySerializer], responses=BilledDeliverySerializer(many=True))
    def get(self, request: Request) -> Response:
        serializer = BilledQuerySerializer(data=request.query_params)
        serializer.is_valid(raise_exception=True)
        deliveries = billed_of(serializer.validated_data["message_id"], workspace_of(request).pk)
        return Response(BilledDeliverySerializer(deliveries, many=True).data)


class UsageExportView(APIView):
    """Delivered messages by period, pipeline and output, as CSV."""

    @extend_schema(parameters=[UsageQuerySerializer], responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request) -> HttpResponse:
        answer = HttpResponse(content_type="text/csv; charset=utf-8")
        answer["Content-Disposition"] = 'attachment; filename="headrace-usage.csv"'
        columns = list(UsageSerializer().fields)
        writer = csv.DictWriter(answer, columns)
        writer.writeheader()
        writer.writerows(UsageSerializer(_rows(request), many=True).data)
        return answer
