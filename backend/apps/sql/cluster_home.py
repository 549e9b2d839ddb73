"""A Kafka Connect cluster that is registered in the workspace as a connector of the type ``kafka_connect``."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pydantic import ValidationError

from backend.apps.audit.services import audit_record
from backend.apps.connectors.models import Connector
from backend.apps.connectors.secret_store import runtime_connector
from backend.apps.sql.entities import ConnectorDescription, ListedConnector, Plugin, Task
from backend.apps.sql.errors import SqlError
from backend.apps.sql.homes import Home, either
from backend.apps.sql.redaction import property_error, secret_values_of, without_secrets
from backend.apps.workspaces.models import User
from backend.connectors.kafka_connect.client import ConnectClient, ConnectError
from backend.connectors.kafka_connect.connection import KafkaConnectConnection
from backend.domain.connect_sql.statements import Change, Direction

T = TypeVar("T")
_LONGEST_AUDITED = 200
_SHOWN = frozenset({"connector.class", "tasks.max", "name"})


class _Target:
    """A cluster's connector, as the audit log names it."""

    def __init__(self, cluster: Connector, name: str) -> None:
        self.pk = cluster.pk
        self.name = f"{cluster.name}.{name}"[:_LONGEST_AUDITED]


class ClusterHome(Home):
    """The connectors of one cluster. Raises SqlError when the stored connection cannot be read."""

    def __init__(self, cluster: Connector, actor: User) -> None:
        self.name = cluster.name
        self._cluster = cluster
        self._actor = actor
        runtime = runtime_connector(cluster)
        try:
            if runtime.error:
                raise SqlError(runtime.error, status=409)
            self._connection = KafkaConnectConnection.model_validate(runtime.connection)
        except ValidationError:
            text = f"The connection of the cluster {cluster.name} is not valid: save it again."
            raise SqlError(text, status=409) from None

    def plugins(self) -> list[Plugin]:
        answer = self._ask(lambda client: client.plugins())
        return [
            Plugin(plugin["class"], plugin["type"], plugin.get("version") or "", self.name)
            for plugin in answer
            if plugin["type"] in ("source", "sink")
        ]

    def connectors(self) -> list[ListedConnector]:
        answer = self._ask(lambda client: client.connectors())
        return [self._listed(name, answer[name]) for name in sorted(answer)]

    def create(self, direction: Direction, name: str, properties: dict[str, str]) -> tuple[str, list[str]]:
        plugin = self._plugin(properties["connector.class"])
        if plugin.direction != direction.lower():
            kind = plugin.direction.upper()
            text = f"The class {plugin.connector_class} is a {plugin.direction}: write CREATE {kind} CONNECTOR."
            raise SqlError(text, properties={"connector.class": [text]})
        config = properties | {"name": name, "connector.class": plugin.connector_class}
        self._check(plugin.connector_class, config)
        values = [value for key, value in config.items() if key not in _SHOWN]
        self._ask(lambda client: client.create(name, config), values)
        self._audit("create", name, after={"class": plugin.connector_class})
        return plugin.connector_class, []

    def describe(self, name: str) -> ConnectorDescription:
        async def read(client: ConnectClient) -> tuple[dict[str, Any], dict[str, str], list[str], list[str]]:
            status, config, topics = await client.status(name), await client.config(name), await client.topics(name)
            try:
                definitions = await client.definitions(config.get("connector.class", ""))
            except ConnectError:  # the class is no longer installed
                definitions = []
            passwords = [entry["name"] for entry in definitions if entry.get("type") == "PASSWORD"]
            return status, config, topics, passwords

        status, config, topics, passwords = self._ask(read)
        values = secret_values_of(config, passwords)
        connector = status["connector"]
        return ConnectorDescription(
            name=name,
            home=self.name,
            direction=status.get("type", "none"),
            connector_class=config.get("connector.class", ""),
            state=connector["state"],
            worker=connector.get("worker_id", ""),
            trace=without_secrets(connector.get("trace", ""), values),
            tasks=[
                Task(
                    task["id"],
                    task["state"],
                    task.get("worker_id", ""),
                    without_secrets(task.get("trace", ""), values),
                )
                for task in status["tasks"]
            ],
            topics=topics,
        )

    def drop(self, name: str) -> list[str]:
        self._ask(lambda client: client.delete(name))
        self._audit("delete", name)
        return []

    def change(self, name: str, change: Change) -> str:
        changes = {Change.PAUSE: "pause", Change.RESUME: "resume", Change.RESTART: "restart"}
        self._ask(lambda client: getattr(client, changes[change])(name))
        self._audit(changes[change], name)
        return ""

    def _plugin(self, connector_class: str) -> Plugin:
        plugins = self.plugins()
        for plugin in plugins:
            simple = plugin.connector_class.rpartition(".")[2]
            if connector_class in (plugin.connector_class, simple, simple.removesuffix("Connector")):
                return plugin
        text = f"The cluster {self.name} has no such class. It has {either([p.connector_class for p in plugins])}."
        raise SqlError("The class is not known.", properties={"connector.class": [text]})

    def _check(self, connector_class: str, config: dict[str, str]) -> None:
        """Raises SqlError with every property that the class does not accept."""
        values = [value for key, value in config.items() if key not in _SHOWN]
        errors = {
            entry["value"]["name"]: [property_error(text, values) for text in entry["value"]["errors"]]
            for entry in self._ask(lambda client: client.validate(connector_class, config), values)
            if entry["value"].get("errors")
        }
        if errors:
            raise SqlError("The properties are not valid; nothing was made.", properties=errors)

    def _listed(self, name: str, entry: dict[str, Any]) -> ListedConnector:
        status, info = entry["status"], entry["info"]
        states = [task["state"] for task in status["tasks"]]
        state = status["connector"]["state"]
        if state == "RUNNING":
            running = states.count("RUNNING")
            state = f"{'RUNNING' if running == len(states) else 'WARNING'} ({running}/{len(states)} tasks RUNNING)"
        connector_class = info["config"].get("connector.class", "")
        return ListedConnector(name, self.name, info.get("type", "none"), connector_class, state)

    def _ask(self, call: Callable[[ConnectClient], Awaitable[T]], values: list[str] | None = None) -> T:
        """Errors leave out these values, which the cluster was sent."""

        async def ask() -> T:
            client = ConnectClient(self._connection)
            try:
                return await call(client)
            finally:
                await client.close()

        try:
            return asyncio.run(ask())
        except ConnectError as error:
            status = error.status if error.status in (404, 409) else 502
            raise SqlError(without_secrets(str(error), values or []), status=status) from None
        except (KeyError, TypeError, ValueError):
            text = f"The cluster {self.name} gives an answer that is not Kafka Connect's: check its address."
            raise SqlError(text, status=502) from None

    def _audit(self, action: str, name: str, after: dict[str, Any] | None = None) -> None:
        audit_record(
            action=f"connector.{action}",
            actor=self._actor,
            workspace=self._cluster.workspace,
            target=_Target(self._cluster, name),
            after=after,
        )
