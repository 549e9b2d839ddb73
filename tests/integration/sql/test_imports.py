"""Tables of a real PostgreSQL that connectors bring into topics and declare as tables."""

import uuid
from collections.abc import Iterator

import psycopg
import pytest

from backend.apps.connectors.models import Connector
from backend.apps.pipelines.models import Pipeline
from backend.apps.sql.imports import imports_follow
from backend.apps.sql.models import SqlImport, SqlSource
from backend.apps.workspaces.models import Workspace
from tests import logical_replication
from tests.infra import DATABASE_URL, PASSWORD, POSTGRESQL_PORT, Server
from tests.integration.sql.conftest import Execute
from tests.logical_replication import logical_server

CREATE = f"""CREATE SOURCE CONNECTOR shop WITH (
  connector.class = sql, dialect = postgresql, host = '127.0.0.1', port = {POSTGRESQL_PORT}, database = postgres,
  user = headrace, password = '{PASSWORD}', tls = disable, topic.prefix = '{{0}}', topic.partitions = 1,
  tables = '{{1}}', mode = 'timestamp', timestamp.column.name = changed)"""


@pytest.fixture
def tables(kafka: Server) -> Iterator[tuple[str, str]]:
    """One with a key of a single column, and one with a key of two; the names end in a suffix of their own."""
    users, lines = (f"{name}_{uuid.uuid4().hex[:8]}" for name in ("users", "lines"))
    columns = "n int, doc bigint, total numeric(8, 2), changed date, PRIMARY KEY (doc, n)"
    with psycopg.connect(DATABASE_URL, autocommit=True) as database:
        database.execute(f"CREATE TABLE {users} (id text PRIMARY KEY, name text, changed timestamptz)".encode())
        database.execute(f"CREATE TABLE {lines} ({columns})".encode())
        yield users, lines
        for table in (users, lines):
            database.execute(f"DROP TABLE {table}".encode())


@pytest.mark.django_db
def test_a_connector_on_a_database_declares_its_tables(
    execute: Execute, workspace: Workspace, tables: tuple[str, str]
) -> None:
    users, lines = tables
    prefix = f"{users}-"
    mine = f"CREATE STREAM shop_{users} (a INT) WITH (kafka_topic = 'mine-{users}', partitions = 1)"
    execute(mine)
    before = SqlSource.objects.get(workspace=workspace)
    [created] = execute(CREATE.format(prefix, f"public.{users}, {lines}"))["results"]
    assert f"There is a stream or table shop_{users} already, which stays as it is." in created["message"]
    assert f"Declared table shop_{lines} on the topic {prefix}{lines}." in created["message"]
    assert PASSWORD not in str(created)

    [described] = execute(f"DESCRIBE shop_{lines}")["results"]
    assert [(column["name"], column["type"], column["key"]) for column in described["columns"]] == [
        ("doc", "BIGINT", "PRIMARY KEY"),
        ("n", "INTEGER", "PRIMARY KEY"),
        ("total", "DECIMAL(8, 2)", ""),
        ("changed", "VARCHAR", ""),
    ]
    assert SqlSource.objects.get(pk=before.pk).definition == before.definition
    pipelines = Pipeline.objects.filter(workspace=workspace).exclude(published=None)
    assert sorted(pipelines.values_list("name", flat=True)) == [f"shop {lines}", f"shop public.{users}"]
    written = {one.published.config["outputs"][0]["options"]["topic"] for one in pipelines}  # type: ignore[union-attr]
    assert written == {f"{prefix}{lines}", f"{prefix}public.{users}"}

    # The database's table gets a column, and the name that was taken is free again.
    with psycopg.connect(DATABASE_URL, autocommit=True) as database:
        database.execute(f"ALTER TABLE {lines} ADD COLUMN paid boolean, DROP COLUMN total".encode())
    execute(f"DROP STREAM shop_{users}")
    imports_follow()
    [described] = execute(f"DESCRIBE shop_{lines}")["results"]
    assert [column["name"] for column in described["columns"]] == ["doc", "n", "total", "changed", "paid"]
    assert execute(f"DESCRIBE shop_{users}")["results"][0]["columns"][0]["name"] == "id"
    # What a user drops is not declared again.
    execute(f"DROP TABLE shop_{users}")
    imports_follow()
    assert SqlSource.objects.filter(workspace=workspace).count() == 1

    [about] = execute("DESCRIBE CONNECTOR shop")["results"]
    assert about["topics"] == [f"{prefix}{lines}", f"{prefix}public.{users}"]
    [dropped] = execute("DROP CONNECTOR shop")["results"]
    assert f"These tables stay, with their topics: shop_{lines}." in dropped["message"]
    assert not pipelines.all().exists()
    assert not SqlImport.objects.exists()


@pytest.mark.django_db
def test_what_is_wrong_with_the_tables_is_said_at_their_property(
    execute: Execute, workspace: Workspace, tables: tuple[str, str]
) -> None:
    missing = execute(CREATE.format("x-", "absent"), 400)["error"]
    assert missing["properties"] == {"tables": ["absent: There is no table absent in the database postgres."]}
    several = CREATE.replace("mode = 'timestamp'", "mode = 'often'").replace("partitions = 1", "partitions = 0")
    several = several.replace("tls = disable", "tls = maybe, kafka.connector = none")
    wrong = execute(several.format("x-", tables[0]), 400)["error"]["properties"]
    assert wrong.keys() == {"mode", "topic.partitions", "tls"}
    assert PASSWORD not in str(wrong)
    assert not Connector.objects.filter(workspace=workspace).exists()


@pytest.mark.django_db
def test_changes_of_all_tables_come_by_one_pipeline(execute: Execute, workspace: Workspace, kafka: Server) -> None:
    server, table = logical_server(), f"items_{uuid.uuid4().hex[:8]}"
    create = CREATE.replace("connector.class = sql, dialect = postgresql", "connector.class = postgres_cdc")
    create = create.replace(", mode = 'timestamp', timestamp.column.name = changed", "")
    refused = execute(create.format(f"{table}-", table), 400)["error"]["properties"]
    assert "wal_level" in str(refused)
    server.start()
    try:
        with psycopg.connect(logical_replication.url(), autocommit=True) as database:
            database.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, tags text[])".encode())
        own = logical_replication.CONNECTION
        create = create.replace(str(POSTGRESQL_PORT), str(own["port"])).replace(PASSWORD, str(own["password"]))
        [created] = execute(create.format(f"{table}-", table))["results"]
        assert f"Declared table shop_{table} on the topic {table}-public.{table}." in created["message"]
    finally:
        server.stop()
    [described] = execute(f"DESCRIBE shop_{table}")["results"]
    assert [(column["name"], column["type"]) for column in described["columns"]] == [
        ("id", "BIGINT"),
        ("tags", "ARRAY<VARCHAR>"),
    ]
    config = Pipeline.objects.get(workspace=workspace, name="shop").versions.get().config
    assert config["input"]["options"]["tables"] == [f"public.{table}"]
    assert config["outputs"][0]["options"] == {"topic": f"{table}-{{{{schema}}}}.{{{{table}}}}", "value": "after"}
    # A database that does not answer is a problem that is shown, and no change.
    imports_follow()
    [about] = execute("DESCRIBE CONNECTOR shop")["results"]
    [warning] = about["warnings"]
    assert warning.startswith(f"public.{table}: ")
    assert len(execute(f"DESCRIBE shop_{table}")["results"][0]["columns"]) == 2
