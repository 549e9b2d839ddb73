from rest_framework.pagination import CursorPagination


class ByNewest(CursorPagination):
    """Cursor pages, newest first (ids are UUIDv7), which stay consistent while rows are added."""

    ordering = "-id"
    page_size_query_param = "page_size"
    max_page_size = 500
