"""The REST API of Kafka Connect, for Headrace's own connectors."""

from typing import Any, ClassVar
from urllib.parse import quote

from django.http import Http404
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from backend.apps.sql.connect.worker import OwnWorker
from backend.apps.sql.errors import SqlError
from backend.apps.workspaces.api.base import actor_of, workspace_of
from backend.apps.workspaces.authentication import ApiKeyAsPasswordAuthentication
from backend.apps.workspaces.models import Role
from backend.domain.connect_sql.statements import Change


class ConnectView(APIView):
    """Its errors are those of Kafka Connect: ``error_code``, which is the status, and ``message``."""

    schema = None  # Kafka Connect's contract, and no part of Headrace's own
    authentication_classes = [ApiKeyAsPasswordAuthentication, *APIView.authentication_classes]  # type: ignore[list-item]

    def get_exception_handler(self) -> Any:
        return _answered

    def worker(self) -> OwnWorker:
        return OwnWorker(workspace_of(self.request), actor_of(self.request))


def _answered(error: Exception, context: dict[str, Any]) -> Response | None:
    match error:
        case SqlError(message=message, status=status, properties=properties):
            listed = [f"{name}: {' '.join(sentences)}" for name, sentences in properties.items()]
            text = "\n".join([message, *listed])
        case Http404():
            text, status = "There is no such path.", 404
        case APIException(status_code=status, detail=detail):
            text = str(detail)
        case _:
            return None
    response = Response({"error_code": status, "message": text}, status=status)
    if auth_header := getattr(error, "auth_header", None):
        response["WWW-Authenticate"] = auth_header
    return response


class WorkerView(ConnectView):
    def get(self, request: Request) -> Response:
        return Response(self.worker().about())


class HealthView(ConnectView):
    def get(self, request: Request) -> Response:
        return Response({"status": "healthy", "message": "The worker answers."})


class PluginsView(ConnectView):
    def get(self, request: Request) -> Response:
        return Response(self.worker().plugins())


class PluginConfigView(ConnectView):
    def get(self, request: Request, plugin: str) -> Response:
        return Response(self.worker().definitions(plugin))


class ValidateView(ConnectView):
    roles: ClassVar[dict[str | None, Role]] = {None: Role.VIEWER}

    def put(self, request: Request, plugin: str) -> Response:
        return Response(self.worker().validate(plugin, _texts(request.data)))


class ConnectorsView(ConnectView):
    def get(self, request: Request) -> Response:
        worker, parts = self.worker(), request.query_params.getlist("expand")
        return Response(worker.expanded(parts) if parts else worker.names())

    def post(self, request: Request) -> Response:
        body = request.data
        if not isinstance(body, dict) or not isinstance(body.get("name"), str):
            raise SqlError("The body is an object with the name and the config of the connector.")
        made = self.worker().create(body["name"], _texts(body.get("config")))
        return _made(request, made)


class ConnectorView(ConnectView):
    def get(self, request: Request, name: str) -> Response:
        return Response(self.worker().info(name))

    def delete(self, request: Request, name: str) -> Response:
        self.worker().delete(name)
        return Response(status=204)


class ConfigView(ConnectView):
    def get(self, request: Request, name: str) -> Response:
        return Response(self.worker().config(name))

    def put(self, request: Request, name: str) -> Response:
        replaced, made = self.worker().replace(name, _texts(request.data))
        return _made(request, replaced) if made else Response(replaced)

    def patch(self, request: Request, name: str) -> Response:
        return Response(self.worker().patch(name, _properties(request.data)))


class StatusView(ConnectView):
    def get(self, request: Request, name: str) -> Response:
        return Response(self.worker().status(name))


class TasksView(ConnectView):
    def get(self, request: Request, name: str) -> Response:
        return Response(self.worker().tasks(name))


class TasksConfigView(ConnectView):
    """An older form of the same, which some programs still ask for."""

    def get(self, request: Request, name: str) -> Response:
        tasks = self.worker().tasks(name)
        return Response({f"{name}-{one['id']['task']}": one["config"] for one in tasks})


class TaskStatusView(ConnectView):
    def get(self, request: Request, name: str, number: str) -> Response:
        return Response(self.worker().task(name, int(number)))


class ChangeView(ConnectView):
    """Pauses, resumes or restarts."""

    roles: ClassVar[dict[str | None, Role]] = {None: Role.OPERATOR}
    change: Change = Change.PAUSE
    answered = 202

    def put(self, request: Request, name: str) -> Response:
        self.worker().change(name, self.change)
        return Response(status=self.answered)


class RestartView(ConnectView):
    roles: ClassVar[dict[str | None, Role]] = {None: Role.OPERATOR}

    def post(self, request: Request, name: str, number: str | None = None) -> Response:
        worker = self.worker()
        if number is not None:
            worker.task(name, int(number))
        worker.change(name, Change.RESTART)
        return Response(status=204)


class TopicsView(ConnectView):
    def get(self, request: Request, name: str) -> Response:
        return Response({name: {"topics": self.worker().topics(name)}})


class TopicSchemaView(ConnectView):
    def get(self, request: Request, name: str, topic: str) -> Response:
        return Response(self.worker().schema(name, topic))


class OffsetsView(ConnectView):
    """Headrace keeps the positions of its inputs itself, in forms of their own."""

    def get(self, request: Request, name: str) -> Response:
        self.worker().info(name)
        return Response({"offsets": []})


class LoggersView(ConnectView):
    """The levels of Headrace's logs are set by its operator."""

    def get(self, request: Request) -> Response:
        return Response({"root": {"level": "INFO", "last_modified": None}})


def _made(request: Request, info: dict[str, Any]) -> Response:
    path = request.path.partition("/connectors")[0]
    return Response(info, status=201, headers={"Location": f"{path}/connectors/{quote(info['name'], safe='')}"})


def _properties(data: Any) -> dict[str, str | None]:
    if not isinstance(data, dict):
        raise SqlError("The properties are an object.")
    if wrong := [key for key, value in data.items() if isinstance(value, dict | list)]:
        text = "This is a text, a number or a truth value; nested properties have dots in their names."
        raise SqlError("The properties are not valid; nothing was made.", properties={key: [text] for key in wrong})
    return {key: str(value).lower() if isinstance(value, bool) else value and str(value) for key, value in data.items()}


def _texts(data: Any) -> dict[str, str]:
    return {key: value for key, value in _properties(data).items() if value is not None}
