from rest_framework.pagination import CursorPagination


class ByNewest(CursorPagination):
    """Pages that stay right while rows are added: newest first, ids being UUIDv7."""

    ordering = "-id"
    page_size_query_param = "page_size"
    max_page_size = 500
