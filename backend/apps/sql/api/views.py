from dataclasses import asdict

from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.apps.sql.api.serializers import (
    SqlAnswerSerializer,
    SqlCheckSerializer,
    SqlConnectorListSerializer,
    SqlLanguageSerializer,
    SqlLine,
    SqlObjectsSerializer,
    SqlQueryListSerializer,
    SqlStatementSerializer,
    StatementsSerializer,
    StreamedStatementsSerializer,
    TextSerializer,
)
from backend.apps.sql.api.streaming import CONTENT_TYPE, streamed
from backend.apps.sql.entities import Check, Language
from backend.apps.sql.history import history_of
from backend.apps.sql.models import SqlStatement
from backend.apps.sql.services import Session, check, execute, stream
from backend.apps.workspaces.api.base import actor_of, role_of, workspace_of
from backend.apps.workspaces.models import Role
from backend.domain.connect_sql import statements as s
from backend.domain.connect_sql.functions import FUNCTIONS
from backend.domain.connect_sql.keywords import keywords


class SqlView(APIView):
    roles = {None: Role.VIEWER}
    """What a statement requires beyond that depends on the statement."""

    @extend_schema(
        request=StatementsSerializer,
        responses={code: SqlAnswerSerializer for code in (200, 400, 403, 404, 409, 501, 502)},
        operation_id="sql_execute",
    )
    def post(self, request: Request) -> Response:
        """Execute statements of Connect SQL, in order and up to the first that fails. If the text has a syntax error,
        none is executed. The status is that of the error, which the answer describes."""
        serializer = StatementsSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        answer = execute(
            workspace=workspace_of(request), actor=actor_of(request), role=role_of(request), **serializer.validated_data
        )
        return Response(asdict(answer), status=answer.error.status if answer.error else 200)


class SqlStreamView(APIView):
    roles = {None: Role.VIEWER}

    @extend_schema(
        request=StreamedStatementsSerializer,
        responses={(200, CONTENT_TYPE): SqlLine},
        operation_id="sql_stream",
    )
    def post(self, request: Request) -> StreamingHttpResponse:
        """Execute statements of Connect SQL, among them such whose rows are streamed: `SELECT` and `PRINT`. Each line
        of the answer is a document of JSON. A query is announced by a line of the type `reading`, which is followed by
        lines of the type `rows`, and ended by one of the type `message`. The first failure ends the answer with a line
        of the type `error`. Closing the connection ends the query."""
        serializer = StreamedStatementsSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        return streamed(
            stream(
                workspace=workspace_of(request),
                actor=actor_of(request),
                role=role_of(request),
                **serializer.validated_data,
            )
        )


class SqlLanguageView(APIView):
    roles = {None: Role.VIEWER}

    @extend_schema(responses=SqlLanguageSerializer, operation_id="sql_language")
    def get(self, request: Request) -> Response:
        """The words of Connect SQL, for completion."""
        return Response(asdict(Language(sorted(keywords()), sorted(FUNCTIONS))))


class SqlCheckView(APIView):
    roles = {None: Role.VIEWER}

    @extend_schema(request=TextSerializer, responses=SqlCheckSerializer, operation_id="sql_check")
    def post(self, request: Request) -> Response:
        """Check the syntax of statements, of which none is executed."""
        serializer = TextSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        return Response(asdict(Check(check(serializer.validated_data["text"]))))


class SqlObjectsView(APIView):
    roles = {None: Role.VIEWER}

    @extend_schema(responses=SqlObjectsSerializer, operation_id="sql_objects")
    def get(self, request: Request) -> Response:
        """The streams, tables and topics of the workspace."""
        return Response(asdict(_session(request).objects()))


class SqlConnectorsView(APIView):
    roles = {None: Role.VIEWER}

    @extend_schema(responses=SqlConnectorListSerializer, operation_id="sql_connectors")
    def get(self, request: Request) -> Response:
        """The connectors of all homes, as `SHOW CONNECTORS` lists them."""
        return Response(asdict(_session(request).execute(s.ShowConnectors())))


class SqlQueriesView(APIView):
    roles = {None: Role.VIEWER}

    @extend_schema(responses=SqlQueryListSerializer, operation_id="sql_queries")
    def get(self, request: Request) -> Response:
        """The queries that run, as `SHOW QUERIES` lists them."""
        return Response(asdict(_session(request).execute(s.Show(s.Listing.QUERIES))))


def _session(request: Request) -> Session:
    return Session(workspace_of(request), actor_of(request), role_of(request), {})


class SqlHistoryView(ListAPIView[SqlStatement]):
    """The statements that were executed in the workspace, newest first, without secrets."""

    serializer_class = SqlStatementSerializer
    queryset = SqlStatement.objects.none()

    def get_queryset(self) -> QuerySet[SqlStatement]:
        return history_of(workspace_of(self.request))
