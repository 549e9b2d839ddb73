"""Tenants, each in a workspace of its own; together their pipelines use every lane. Three more misbehave."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from backend.domain.message import filtered_message_id
from tests.chaos.receivers import Receivers
from tests.chaos.sources import Source, Table, Topic
from tests.installation import Installation, call

KEYS = 5
"""Ordering keys of each tenant."""

_BREAKER = {"errors": 10, "window_seconds": 10, "open_seconds": 5}
_RETRY = {"attempts": 3, "initial_seconds": 0.1}
_INDEX = [{"name": "key", "path": "key"}]

_CREATE = """
import json
from backend.apps.workspaces.models import Scope, User
from backend.apps.workspaces.services import api_key_create, workspace_create
admin = User.objects.get(username="admin")
def key(slug):
    workspace = workspace_create(slug=slug, name=slug, admin=admin)
    return api_key_create(workspace=workspace, actor=admin, name="Chaos", scopes=list(Scope.values))[1]
print(json.dumps({slug: key(slug) for slug in %r}))
"""


@dataclass(frozen=True)
class Destination:
    """An output that gets every message of its tenant, unless the message is refused for its ``reason``."""

    tenant: str
    pipeline: str
    output: str
    ordered: bool = True
    """Whether its deliveries follow the order of each key; a rate limit sets messages aside."""
    prompt: bool = True
    """Whether nothing but the platform delays its deliveries."""
    subscribes: bool = False
    """Whether its pipeline takes the messages from another one by a filter, under other ids."""
    reads: bool = False
    """Whether its pipeline reads its input, so that messages are known by their documents' ids."""

    def id_of(self, message_id: str) -> str:
        """The id under which a message that the tenant sent arrives here."""
        return filtered_message_id(message_id, self.pipeline) if self.subscribes else message_id


@dataclass
class Tenant:
    """``entry`` is the pipeline that messages are posted to, unless they are written to a ``source`` that it reads.
    ``refused`` says that every message is refused."""

    name: str
    key: str
    entry: str = ""
    pipelines: list[str] = field(default_factory=list)
    destinations: list[Destination] = field(default_factory=list)
    padding: int = 0
    """Bytes that are added to each message."""
    source: Source | None = None
    messages: int = 5
    """Messages of a request."""
    pause: float = 0.5
    """Seconds between two requests."""
    refused: bool = False
    misbehaves: bool = False


class Provisioner:
    """Creates the tenants' workspaces, connectors and pipelines."""

    def __init__(self, installation: Installation, receivers: Receivers, prefix: str) -> None:
        self._installation = installation
        self._receivers = receivers
        self._prefix = prefix

    def tenants(self) -> list[Tenant]:
        shapes = [shape for shape, count in _SHAPES for _ in range(count)]
        shapes += [_poison, _hanging, _refusing]
        names = [f"{self._prefix}-{number}" for number in range(len(shapes))]
        keys = json.loads(self._installation.manage_in("shell", "-v", "0", "-c", _CREATE % names).splitlines()[-1])
        tenants = [Tenant(name, keys[name]) for name in names]
        for tenant, shape in zip(tenants, shapes, strict=True):
            shape(self, tenant)
        return tenants

    def create(self, tenant: Tenant, path: str, body: Any) -> dict[str, Any]:
        status, answer = call("POST", f"{self._installation.endpoint('api')}{path}", body, tenant.key)
        assert status in (200, 201), answer
        return dict(answer)

    def connector(self, tenant: Tenant, path: str) -> str:
        body = {"name": path, "type": "http", "connection": {"url": f"{self._receivers.url}/{path}"}}
        return str(self.create(tenant, "connectors/", body)["id"])

    def read(self, tenant: Tenant, source: Source) -> None:
        """Publishes a pipeline that reads the source and delivers each document under the document's own id."""
        connector = self.create(tenant, "connectors/", {"name": "source", **source.connector})["id"]
        config = {"type": "connector", "connector": connector, "options": source.options, "ordering_key": "key"}
        self.publish_to(tenant, self.output(tenant, "out"), expects={"prompt": False, "reads": True}, input=config)
        tenant.source = source

    @property
    def kafka(self) -> str:
        return self._installation.endpoint("kafka")

    @property
    def database_url(self) -> str:
        return self._installation.database_url

    def output(self, tenant: Tenant, name: str, behaviour: str = "good", **options: Any) -> dict[str, Any]:
        connector = self.connector(tenant, f"{behaviour}/{tenant.name}/{name}")
        output = {"name": name, "connector": connector, "breaker": _BREAKER, "retry": _RETRY, "timeout_seconds": 2}
        return output | options

    def publish(self, tenant: Tenant, outputs: list[dict[str, Any]], **config: Any) -> str:
        """Publishes a pipeline and returns its id. Messages are posted to the first one of a tenant."""
        config = {"input": {"type": "http", "ordering_key": "key"}, "outputs": outputs} | config
        name = f"{tenant.name} {len(tenant.pipelines)}"
        pipeline = str(self.create(tenant, "pipelines/", {"name": name, "config": config})["id"])
        self.create(tenant, f"pipelines/{pipeline}/publish/", {})
        tenant.pipelines.append(pipeline)
        tenant.entry = tenant.entry or pipeline
        return pipeline

    def publish_to(self, tenant: Tenant, output: dict[str, Any], *, expects: dict[str, bool], **config: Any) -> None:
        """The same with one output, which every message is to reach."""
        pipeline = self.publish(tenant, [output], **config)
        tenant.destinations.append(Destination(tenant.name, pipeline, output["name"], **expects))


_STEPS = [{"type": "set", "path": "source", "value": "chaos"}, {"type": "rename", "path": "note", "to": "remark"}]


def _plain(make: Provisioner, tenant: Tenant) -> None:
    make.publish_to(tenant, make.output(tenant, "out"), expects={})


def _steps(make: Provisioner, tenant: Tenant) -> None:
    make.publish_to(tenant, make.output(tenant, "out"), expects={}, transforms=_STEPS)


def _calling(make: Provisioner, tenant: Tenant) -> None:
    step = {
        "type": "call", "connector": make.connector(tenant, "api"), "options": {"path": "/{{n}}"},
        "mapping": {"name": "name"}, "retry": {"attempts": 5}, "breaker": _BREAKER,
    }  # fmt: skip
    make.publish_to(tenant, make.output(tenant, "out"), expects={"prompt": False}, transforms=[step])


def _bursting(make: Provisioner, tenant: Tenant) -> None:
    """More messages at a time than may wait for an API: the slow lane takes the rest."""
    _calling(make, tenant)
    tenant.messages, tenant.pause = 300, 15.0


def _topic(make: Provisioner, tenant: Tenant) -> None:
    make.read(tenant, Topic(make.kafka, tenant.name))


def _table(make: Provisioner, tenant: Tenant) -> None:
    make.read(tenant, Table(make.database_url, tenant.name))


def _filtered(make: Provisioner, tenant: Tenant) -> None:
    make.publish_to(tenant, make.output(tenant, "out"), expects={}, index=_INDEX)
    subscription = {"type": "filter", "condition": {"type": "in", "field": "key", "values": [*map(str, range(KEYS))]}}
    make.publish_to(tenant, make.output(tenant, "sub"), expects={"subscribes": True}, input=subscription)


def _two_outputs(make: Provisioner, tenant: Tenant) -> None:
    pipeline = make.publish(tenant, [make.output(tenant, "good"), make.output(tenant, "bad", "failing")])
    tenant.destinations += [
        Destination(tenant.name, pipeline, "good"),
        Destination(tenant.name, pipeline, "bad", prompt=False),
    ]


def _batched(make: Provisioner, tenant: Tenant) -> None:
    batch = {"messages": 20, "seconds": 0.5}
    output = make.output(tenant, "out", batch=batch, options={"batch_lines": "envelope"})
    make.publish_to(tenant, output, expects={"prompt": False})


def _limited(make: Provisioner, tenant: Tenant) -> None:
    output = make.output(tenant, "out", rate_limit={"messages": 20, "burst": 5})
    make.publish_to(tenant, output, expects={"prompt": False, "ordered": False})


def _with_behaviour(behaviour: str) -> "Shape":
    def shape(make: Provisioner, tenant: Tenant) -> None:
        make.publish_to(tenant, make.output(tenant, "out", behaviour), expects={"prompt": False})

    return shape


def _poison(make: Provisioner, tenant: Tenant) -> None:
    """Small messages that the steps make larger than Kafka takes."""
    grow = {"type": "template", "path": "pad", "template": "{{pad}}{{pad}}"}
    make.publish_to(tenant, make.output(tenant, "out"), expects={}, transforms=[grow] * 6)
    tenant.padding, tenant.pause, tenant.refused, tenant.misbehaves = 100_000, 2.0, True, True


def _hanging(make: Provisioner, tenant: Tenant) -> None:
    """A receiver that hangs, at an output that may hold as much as a lane does."""
    output = make.output(tenant, "out", "hanging", queue=2000, timeout_seconds=30)
    make.publish_to(tenant, output, expects={"prompt": False, "ordered": False})
    tenant.misbehaves = True


def _refusing(make: Provisioner, tenant: Tenant) -> None:
    make.publish_to(tenant, make.output(tenant, "out", "refusing"), expects={"prompt": False, "ordered": False})
    tenant.misbehaves = True


Shape = Callable[[Provisioner, Tenant], None]
_SHAPES: list[tuple[Shape, int]] = [
    (_plain, 2),
    (_steps, 2),
    (_calling, 2),
    (_bursting, 1),
    (_topic, 1),
    (_table, 1),
    (_filtered, 2),
    (_two_outputs, 2),
    (_batched, 2),
    (_limited, 1),
    (_with_behaviour("failing"), 1),
    (_with_behaviour("slow"), 2),
    (_with_behaviour("pausing"), 1),
]
