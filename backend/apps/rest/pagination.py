"""Pages of lists."""

from typing import Any

from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView


class ByNewest(CursorPagination):
    """Cursor pages, newest first (ids are UUIDv7), which stay consistent while rows are added."""

    ordering = "-id"
    page_size_query_param = "page_size"
    max_page_size = 500


class CountedByNewest(ByNewest):
    """Also with the number of all that match, for lists whose end the console may not reach. Not for those that grow
    with the messages: each page counts."""

    def paginate_queryset(self, queryset: Any, request: Request, view: APIView | None = None) -> Any:
        self._count = queryset.count()
        return super().paginate_queryset(queryset, request, view)

    def get_paginated_response(self, data: Any) -> Response:
        return Response({"count": self._count, **super().get_paginated_response(data).data})

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        described = super().get_paginated_response_schema(schema)
        count = {"type": "integer", "description": "How many match, on all pages."}
        described["required"] = ["count", *described["required"]]
        described["properties"] = {"count": count, **described["properties"]}
        return described
