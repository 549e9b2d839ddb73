"""Objects for tests, made through the services that users' requests go through."""

import itertools
from datetime import UTC, datetime
from typing import Any

from django.db import connection
from django.db.models import Model, OuterRef, Subquery

from backend.apps.connectors.models import Connector
from backend.apps.connectors.services import connector_create
from backend.apps.deliveries.models import DeadLetter
from backend.apps.pipelines.models import Pipeline, PipelineVersion
from backend.apps.pipelines.services import pipeline_create
from backend.apps.workspaces.models import Membership, Role, User, Workspace
from backend.apps.workspaces.services import workspace_create
from backend.domain.message import new_message_id

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


def make_letter(pipeline: Pipeline, **fields: Any) -> DeadLetter:
    now = datetime.now(UTC)
    values = {
        "workspace_id": pipeline.workspace_id,
        "pipeline_id": pipeline.pk,
        "output": "out",
        "stage": "syndicating",
        "message_id": new_message_id(),
        "version": 1,
        "reason": "http_500",
        "error": "The receiver answered 500.",
        "key": b"k",
        "body": b'{"a": 1}',
        "body_bytes": 8,
        "content_type": "application/json",
        "first_at": now,
        "last_at": now,
    }
    return DeadLetter.objects.create(**values | fields)


def copies(original: Model, count: int, **expressions: str) -> None:
    """Copies of a stored row, made by the database in a fraction of the time of ``bulk_create``. ``expressions`` are
    SQL of the fields that differ, in which ``n`` is the copy's number from 1; primary keys are new in any case."""
    fields = [field for field in original._meta.concrete_fields if not field.get_internal_type().endswith("AutoField")]
    keys = {field.name: "gen_random_uuid()" for field in fields if field.primary_key}
    values = ", ".join((keys | expressions).get(field.name, f'original."{field.column}"') for field in fields)
    columns = ", ".join(f'"{field.column}"' for field in fields)
    table, key = original._meta.db_table, original._meta.pk.column
    rows = f'SELECT {values} FROM "{table}" AS original, generate_series(1, %s) AS n WHERE original."{key}" = %s'
    with connection.cursor() as cursor:
        cursor.execute(f'INSERT INTO "{table}" ({columns}) {rows}', [count, original.pk])


def make_pipelines(workspace: Workspace, count: int, **config: Any) -> list[Pipeline]:
    """Published pipelines, as the services would have made them one by one."""
    first = make_pipeline(workspace, **config)
    key = f"md5('{first.pk}' || n)::uuid"
    copies(first, count - 1, id=key, name="'Bulk ' || n")
    copies(first.versions.get(), count - 1, pipeline=key)
    version = PipelineVersion.objects.filter(pipeline=OuterRef("pk"))
    Pipeline.objects.filter(workspace=workspace).update(published=Subquery(version.values("pk")[:1]))
    return list(Pipeline.objects.filter(workspace=workspace))
