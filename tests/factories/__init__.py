"""Objects for tests, made through the services that users' requests go through."""

import itertools
from typing import Any

from backend.apps.connectors.models import Connector
from backend.apps.connectors.services import connector_create
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.services import pipeline_create
from backend.apps.workspaces.models import Membership, Role, User, Workspace
from backend.apps.workspaces.services import workspace_create

_numbers = itertools.count(1)


def make_user(**fields: Any) -> User:
    return User.objects.create_user(f"user-{next(_numbers)}", password="a-good-password", **fields)


def make_workspace(admin: User | None = None) -> Workspace:
    number = next(_numbers)
    return workspace_create(slug=f"workspace-{number}", name=f"Workspace {number}", admin=admin or make_user())


def add_member(workspace: Workspace, role: Role) -> User:
    user = make_user()
    Membership.objects.create(workspace=workspace, user=user, role=role)
    return user


def admin_of(workspace: Workspace) -> User:
    return User.objects.get(membership__workspace=workspace, membership__role=Role.ADMIN)


def make_connector(workspace: Workspace, type: str = "http", **connection: Any) -> Connector:
    if type == "http":
        connection = {"url": "http://127.0.0.1:1/", **connection}
    return connector_create(
        workspace=workspace,
        actor=admin_of(workspace),
        name=f"Connector {next(_numbers)}",
        type=type,
        connection=connection,
    )


def output(connector: Connector, name: str = "out", **fields: Any) -> dict[str, Any]:
    return {"name": name, "connector": str(connector.pk), **fields}


def make_pipeline(workspace: Workspace, connector: Connector | None = None, **config: Any) -> Pipeline:
    config.setdefault("outputs", [output(connector or make_connector(workspace))])
    return pipeline_create(
        workspace=workspace, actor=admin_of(workspace), name=f"Pipeline {next(_numbers)}", config=config
    )
