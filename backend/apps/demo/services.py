"""The demo of the embedded installation: a workspace, two pipelines, and a generator."""

import os
import secrets
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction

from backend.apps.connectors.models import Connector
from backend.apps.connectors.services import connector_create, connector_update
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.services import pipeline_create, pipeline_publish
from backend.apps.workspaces.models import Scope, User, Workspace
from backend.apps.workspaces.selectors import key_by_text
from backend.apps.workspaces.services import api_key_create, workspace_create
from backend.network.redis_client import redis_client

SLUG = "demo"
USERNAME = "admin"
UNTRANSFORMED = "Orders as they come"
TRANSFORMED = "Brazilian orders, adapted"

GENERATOR_RATE = "headrace:demo:generator:rate"
MOST_PER_SECOND = 500

_TRANSFORMS: list[dict[str, Any]] = [
    {"type": "drop_unless", "path": "user.country", "condition": "in", "value": ["BR", "PT"]},
    {"type": "rename", "path": "user", "to": "customer"},
    {"type": "set", "path": "source", "value": "headrace-demo"},
]


def demo_ensure() -> None:
    """Creates what is missing, and leaves everything else unchanged."""
    with transaction.atomic():
        admin = _admin()
        workspace = Workspace.objects.filter(slug=SLUG).first() or workspace_create(slug=SLUG, name="Demo", admin=admin)
        _api_key(workspace, admin)
        connector = _receiver_connector(workspace, admin)
        _pipeline(UNTRANSFORMED, connector, receiver="untransformed", transforms=[])
        _pipeline(TRANSFORMED, connector, receiver="transformed", transforms=_TRANSFORMS)


def demo_facts() -> dict[str, Any]:
    """What a script needs to drive the demo."""
    pipelines = Pipeline.objects.filter(workspace__slug=SLUG)
    return {
        "api_key": key_file().read_text().strip(),
        "username": USERNAME,
        "password_file": str(password_file()),
        "receiver": _receiver_url(),
        "pipelines": {
            "untransformed": str(pipelines.get(name=UNTRANSFORMED).pk),
            "transformed": str(pipelines.get(name=TRANSFORMED).pk),
        },
    }


def generator_set_rate(rate: int) -> None:
    """Messages per second to each demo pipeline; 0 switches the generator off."""
    redis_client().set(GENERATOR_RATE, rate)


def generator_rate() -> int:
    rate: Any = redis_client().get(GENERATOR_RATE)
    return int(rate or 0)


def password_file() -> Path:
    return Path(settings.CONSOLE.var) / "secrets/admin-password"


def key_file() -> Path:
    return Path(settings.CONSOLE.var) / "secrets/demo-api-key"


def _receiver_url() -> str:
    return f"{settings.CONSOLE.public_url}/demo/receiver"


def _admin() -> User:
    existing = User.objects.filter(username=USERNAME).first()
    if existing is not None:
        return existing
    password = secrets.token_urlsafe(12)
    _write_private(password_file(), password)
    return User.objects.create_superuser(USERNAME, password=password)


def _api_key(workspace: Workspace, admin: User) -> None:
    if key_file().exists() and key_by_text(key_file().read_text().strip()) is not None:
        return
    _, text = api_key_create(workspace=workspace, actor=admin, name="Demo", scopes=list(Scope.values))
    _write_private(key_file(), text)


def _receiver_connector(workspace: Workspace, admin: User) -> Connector:
    connection = {"url": _receiver_url()}
    existing = Connector.objects.filter(workspace=workspace, name="Demo receiver").first()
    if existing is None:
        return connector_create(
            workspace=workspace, actor=admin, name="Demo receiver", type="http", connection=connection
        )
    if existing.connection.get("url") != connection["url"]:  # the ports have changed
        connector_update(
            connector=existing, actor=admin, name=existing.name, connection=existing.connection | connection
        )
    return existing


def _pipeline(name: str, connector: Connector, *, receiver: str, transforms: list[dict[str, Any]]) -> None:
    workspace = connector.workspace
    if Pipeline.objects.filter(workspace=workspace, name=name).exists():
        return
    output = {"name": "receiver", "connector": str(connector.pk), "options": {"path": f"/{receiver}"}}
    config = {"transforms": transforms, "outputs": [output]}
    actor = connector.created_by
    pipeline_publish(pipeline=pipeline_create(workspace=workspace, actor=actor, name=name, config=config), actor=actor)


def _write_private(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text + "\n")
