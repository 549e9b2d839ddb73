"""Executes statements. What they answer, and why they fail, holds no secret."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import TypeVar

from backend.apps.connectors.selectors import connectors_of
from backend.apps.sql.cluster_home import ClusterHome
from backend.apps.sql.entities import (
    ConnectorList,
    Entity,
    Failure,
    ListedConnector,
    Message,
    NameList,
    Objects,
    Plugin,
    PluginList,
)
from backend.apps.sql.errors import SqlError
from backend.apps.sql.history import history_add
from backend.apps.sql.homes import Home, either
from backend.apps.sql.models import SqlStatement
from backend.apps.sql.own_home import CLASS, OwnHome
from backend.apps.sql.readings import Line
from backend.apps.sql.secrets import resolved, secret_create, secret_delete, secret_names
from backend.apps.sql.streams import Streams
from backend.apps.workspaces.models import Role, User, Workspace
from backend.domain.connect_sql import statements as s
from backend.domain.connect_sql.errors import QueryError, StatementError
from backend.domain.connect_sql.parser import parse
from backend.domain.connect_sql.printer import masked, masked_text
from backend.domain.connect_sql.variables import with_variables

T = TypeVar("T")
S = TypeVar("S", bound=s.Statement)
CLUSTER = "headrace.cluster"
_MOST_AT_ONCE = 8
_LONGEST_NAME = 100
_ROLES: dict[type[s.Statement], Role] = {
    s.ShowConnectors: Role.VIEWER,
    s.ShowPlugins: Role.VIEWER,
    s.Show: Role.VIEWER,
    s.Describe: Role.VIEWER,
    s.Explain: Role.VIEWER,
    s.Select: Role.VIEWER,
    s.Define: Role.VIEWER,
    s.Undefine: Role.VIEWER,
    s.ChangeConnector: Role.OPERATOR,
}
"""Every other statement requires an editor."""


@dataclass(frozen=True)
class Answer:
    """What the statements answered, up to the first that failed; none is executed after it."""

    results: list[Entity]
    error: Failure | None = None


def execute(*, workspace: Workspace, actor: User, role: Role, text: str, variables: dict[str, str]) -> Answer:
    """Executes the statements in order. If the text has a syntax error, none is."""
    session = Session(workspace, actor, role, variables)
    lines = list(_executed(session, text, lambda statement: iter([session.execute(statement)])))
    failure = next((line for line in lines if isinstance(line, Failure)), None)
    return Answer([line for line in lines if isinstance(line, Entity)], failure)


def stream(
    *, workspace: Workspace, actor: User, role: Role, text: str, variables: dict[str, str], from_beginning: bool
) -> Iterator["Line | Failure"]:
    """The same, with the rows of SELECT and PRINT as they come: those that are written from now on, or all. A failure
    is the last that comes."""
    session = Session(workspace, actor, role, variables)
    return _executed(session, text, lambda statement: session.lines(statement, from_beginning=from_beginning))


def _executed(
    session: "Session", text: str, lines_of: Callable[[s.Statement], Iterator[Line]]
) -> Iterator[Line | Failure]:
    try:
        statements = parse(text)
    except StatementError as error:
        failure = _failure(error, masked_text(text), 1)
        session.remember(failure.statement, failure.message)
        yield failure
        return
    for statement in statements:
        shown = masked(statement)
        entry: SqlStatement | None = None
        try:
            for line in lines_of(statement):
                entry = entry or session.remember(shown)
                yield replace(line, statement=shown) if isinstance(line, Entity) else line
        except (StatementError, SqlError) as error:
            failure = _failure(error, shown, statement.line)
            if entry is None:
                session.remember(shown, failure.message)
            else:
                entry.error = failure.message
                entry.save(update_fields=["error"])
            yield failure
            return


def check(text: str) -> Failure | None:
    """What is wrong with the syntax of statements, none of which is executed."""
    try:
        parse(text)
    except StatementError as error:
        return _failure(error, masked_text(text), 1)
    return None


def _failure(error: StatementError | SqlError, shown: str, line: int) -> Failure:
    if isinstance(error, StatementError):
        return Failure(error.message, 400, error.line, error.column, list(error.expected), statement=shown)
    return Failure(error.message, error.status, line, properties=error.properties, statement=shown)


class Session:
    """The statements of one request, which share their variables."""

    def __init__(self, workspace: Workspace, actor: User, role: Role, variables: dict[str, str]) -> None:
        self._workspace = workspace
        self._actor = actor
        self._role = role
        self._variables = dict(variables)
        self._own = OwnHome(workspace, actor)
        self._streams = Streams(workspace, actor)

    def remember(self, text: str, error: str = "") -> SqlStatement:
        """Adds to the workspace's history what holds no secrets."""
        return history_add(workspace=self._workspace, actor=self._actor, text=text, error=error)

    def lines(self, statement: s.Statement, *, from_beginning: bool) -> Iterator[Line]:
        """What a statement answers, of which rows come over time. Raises SqlError and StatementError."""
        if not isinstance(statement, s.Select | s.Print):
            yield self.execute(statement)
            return
        with _query_errors():
            yield from self._streams.read(self._ready(statement), from_beginning=from_beginning)

    def objects(self) -> Objects:
        """Streams, tables and topics."""
        return self._streams.objects()

    def execute(self, statement: s.Statement) -> Entity:
        """Raises SqlError and StatementError."""
        match self._ready(statement):
            case s.ShowConnectors(direction=direction):
                return self._show_connectors(direction)
            case s.ShowPlugins():
                plugins, failures = self._of_all(lambda home: home.plugins())
                return PluginList(plugins=plugins, warnings=_sentences(failures))
            case s.CreateConnector() as create:
                return self._create_connector(create)
            case s.Describe(name=name, connector=False) if described := self._streams.describe(name):
                return described
            case s.Describe(name=name):
                home, name = self._find(name)
                return home.describe(name)
            case s.DropConnector() as drop:
                return self._drop_connector(drop)
            case s.ChangeConnector(change=change, name=name):
                home, name = self._find(name)
                concerned = home.change(name, change)
                return Message(message=f"{_CHANGED[change]} connector {name}{concerned and ', and '}{concerned}.")
            case other:
                return self._execute_other(other)

    def _ready(self, statement: S) -> S:
        """The statement with its variables' values, if it is allowed."""
        if not self._role.includes(_ROLES.get(type(statement), Role.EDITOR)):
            raise SqlError("Your role in this workspace does not allow this statement.", status=403)
        return with_variables(statement, self._variables)

    def _execute_other(self, statement: s.Statement) -> Entity:
        match statement:
            case s.CreateSecret() as create:
                return self._create_secret(create)
            case s.DropSecret(name=name, if_exists=if_exists):
                if secret_delete(workspace=self._workspace, actor=self._actor, name=name):
                    return Message(message=f"Dropped secret {name}. Connectors that were made with it keep its value.")
                if not if_exists:
                    raise SqlError(f"There is no secret {name}.", status=404)
                return Message(warnings=[f"There is no secret {name}."])
            case s.Show(listing=s.Listing.SECRETS):
                return NameList(names=secret_names(self._workspace))
            case s.Show(listing=s.Listing.VARIABLES):
                return NameList(names=sorted(self._variables))
            case s.Define(name=name, value=value):
                self._variables[name] = value
                return Message(message=f"Defined {name}.")
            case s.Undefine(name=name):
                self._variables.pop(name, None)
                return Message(message=f"{name} is no longer defined.")
        with _query_errors():
            return self._streams.execute(statement)

    def _show_connectors(self, direction: s.Direction | None) -> Entity:
        connectors, failures = self._of_all(lambda home: home.connectors())
        if direction is not None:
            connectors = [one for one in connectors if one.direction in (direction.lower(), "both")]
        return ConnectorList(connectors=connectors, warnings=_sentences(failures))

    def _create_connector(self, create: s.CreateConnector) -> Entity:
        if create.properties.elided:
            raise SqlError("The three dots stand for properties: write them out.")
        if not create.name.strip() or len(create.name) > _LONGEST_NAME:
            raise SqlError(f"The name of a connector has 1 to {_LONGEST_NAME} characters.")
        properties = {key: _text(value) for key, value in create.properties.as_dict().items() if value is not None}
        if not properties.get(CLASS):
            text = f"This property is required. {self._classes()}"
            raise SqlError("The class is missing.", properties={CLASS: [text]})
        properties = resolved(self._workspace, properties)
        cluster = properties.pop(CLUSTER, None)
        home = self._home_of(properties[CLASS], cluster)
        existing, failures = self._of_all(lambda home: home.connectors())
        if home.name in failures:
            raise failures[home.name]
        if taken := next((one for one in existing if one.name.lower() == create.name.lower()), None):
            if create.if_not_exists:
                return Message(warnings=[f"Connector {taken.name} already exists."])
            raise SqlError(f"Connector {taken.name} already exists.", status=409)
        connector_class, made = home.create(create.direction, create.name, properties)
        text = " ".join([f"Created connector {create.name} ({connector_class}) in {home.name}.", *made])
        return Message(message=text, warnings=_sentences(failures))

    def _home_of(self, connector_class: str, cluster: str | None) -> Home:
        """``connector.class`` decides, and among several clusters ``headrace.cluster``."""
        if self._own.has_class(connector_class):
            return self._own
        clusters = self._clusters()
        if cluster is not None:
            if cluster not in clusters:
                known = f"The workspace has {either(sorted(clusters))}." if clusters else _NO_CLUSTER
                raise SqlError("The cluster is not known.", properties={CLUSTER: [known]})
            return clusters[cluster]()
        if not clusters:
            text = f"There is no such class. {self._classes()} {_NO_CLUSTER}"
            raise SqlError("The class is not known.", properties={CLASS: [text]})
        if len(clusters) > 1:
            text = f"Several clusters are registered: say which one with {CLUSTER}: {either(sorted(clusters))}."
            raise SqlError("The cluster is not given.", properties={CLUSTER: [text]})
        return next(iter(clusters.values()))()

    def _drop_connector(self, drop: s.DropConnector) -> Entity:
        try:
            home, name = self._find(drop.name)
        except SqlError as error:
            if drop.if_exists and error.status == 404:
                return Message(warnings=[error.message])
            raise
        ended = home.drop(name)
        if drop.terminate:
            ended.append("TERMINATE stopped nothing else: queries read topics, which stay.")
        return Message(message=" ".join([f"Dropped connector {name} from {home.name}.", *ended]))

    def _create_secret(self, create: s.CreateSecret) -> Entity:
        if create.if_not_exists and create.name in secret_names(self._workspace):
            return Message(warnings=[f"There is a secret {create.name} already; it stays as it is."])
        secret_create(
            workspace=self._workspace,
            actor=self._actor,
            name=create.name,
            value=create.value,
            replace=create.or_replace,
        )
        return Message(message=f"Created secret {create.name}: ${{secret:{create.name}}} stands for it.")

    def _find(self, name: str) -> tuple[Home, str]:
        """A connector's home and its name as it is written there. A name that several homes have is given with the
        home's name before it. Raises SqlError."""
        homes: dict[str, Home] = {}
        places: list[tuple[str, str]] = []

        def listed(home: Home) -> list[ListedConnector]:
            homes[home.name] = home
            return home.connectors()

        connectors, failures = self._of_all(listed)
        for same in (_equal, _equal_without_case):
            places = [
                (one.home, one.name)
                for one in connectors
                if same(one.name, name) or same(f"{one.home}.{one.name}", name)
            ]
            if places:
                break
        if len(places) > 1:
            names = either([f'"{home}.{own}"' for home, own in places])
            raise SqlError(f"Several connectors have this name: write {names}.", status=409)
        if places:
            home, own = places[0]
            return homes[home], own
        if failures:
            reasons = " ".join(_sentences(failures))
            raise SqlError(f"There is no connector {name} in the homes that answer. {reasons}", status=502)
        raise SqlError(f"There is no connector {name}.", status=404)

    def _clusters(self) -> dict[str, Callable[[], Home]]:
        registered = connectors_of(self._workspace).filter(type="kafka_connect").select_related("workspace")
        return {cluster.name: partial(ClusterHome, cluster, self._actor) for cluster in registered}

    def _of_all(self, read: Callable[[Home], list[T]]) -> tuple[list[T], dict[str, SqlError]]:
        """What all homes have, and why some do not answer, by their names."""
        homes: list[Home] = []
        failures: dict[str, SqlError] = {}
        for name, make in self._clusters().items():
            try:
                homes.append(make())
            except SqlError as error:
                failures[name] = error
        items: list[T] = list(read(self._own))

        def ask(home: Home) -> list[T] | SqlError:
            try:
                return read(home)
            except SqlError as error:
                return error

        if homes:
            with ThreadPoolExecutor(min(len(homes), _MOST_AT_ONCE)) as pool:
                for home, answer in zip(homes, pool.map(ask, homes), strict=True):
                    if isinstance(answer, SqlError):
                        failures[home.name] = answer
                    else:
                        items += answer
        return items, failures

    def _classes(self) -> str:
        plugins: list[Plugin]
        plugins, _ = self._of_all(lambda home: home.plugins())
        return f"Available: {either([plugin.connector_class for plugin in plugins])}."


_NO_CLUSTER = "No Kafka Connect cluster is registered: make a connector of the class kafka_connect with its url."
_CHANGED = {s.Change.PAUSE: "Paused", s.Change.RESUME: "Resumed", s.Change.RESTART: "Restarted"}


@contextmanager
def _query_errors() -> Iterator[None]:
    """Raises SqlError for a QueryError."""
    try:
        yield
    except QueryError as error:
        raise SqlError(error.message, status=400 if error.supported else 501, properties=error.properties) from None


def _sentences(failures: dict[str, SqlError]) -> list[str]:
    return [error.message for error in failures.values()]


def _equal(one: str, other: str) -> bool:
    return one == other


def _equal_without_case(one: str, other: str) -> bool:
    return one.lower() == other.lower()


def _text(value: str | int | Decimal | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:f}" if isinstance(value, Decimal) else str(value)
