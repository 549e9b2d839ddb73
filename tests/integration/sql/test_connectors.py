"""Statements about connectors, in a real Kafka Connect cluster and among Headrace's own."""

import socket
import time
from pathlib import Path
from typing import Any

import pytest
import requests
from confluent_kafka import Consumer
from rest_framework.test import APIClient

from backend.apps.audit.models import AuditEntry
from backend.apps.connectors.models import Connector
from backend.apps.connectors.secret_store import connection_with_secrets, secrets_reseal
from backend.apps.sql.models import SqlSecret, SqlStatement
from backend.apps.workspaces.models import Workspace
from backend.domain.connector import connectors
from tests import factories
from tests.infra import KAFKA
from tests.integration.sql.conftest import Execute
from tests.kafka_connect import FILE_SINK, FILE_SOURCE, URL
from tests.waiting import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.django_db
SECRET = "planted-secret-of-sql"


def described(execute: Execute, name: str) -> dict[str, Any]:
    [result] = execute(f"DESCRIBE CONNECTOR {name};")["results"]
    return dict(result)


def test_a_source_connector_lives_from_create_to_drop(execute: Execute, cluster: Connector, tmp_path: Path) -> None:
    file, topic = tmp_path / "lines.txt", f"lines-{time.time_ns()}"
    file.write_text("first\nsecond\n")
    created = execute(
        f"""CREATE SOURCE CONNECTOR my-file-source WITH (
              connector.class=FileStreamSource, tasks.max=1, file='{file}', topic="{topic}",
              topic.creation.default.partitions=1, topic.creation.default.replication.factor=1);"""
    )
    assert created["error"] is None
    [result] = created["results"]
    assert result["type"] == "message"
    assert result["message"] == f"Created connector my-file-source ({FILE_SOURCE}) in {cluster.name}."
    assert str(file) not in str(created)

    assert described(execute, "my-file-source")["state"] in ("UNASSIGNED", "RUNNING")
    wait_until(lambda: described(execute, "my-file-source")["topics"] == [topic])
    shown = described(execute, "MY-FILE-SOURCE")
    assert (shown["type"], shown["name"], shown["direction"]) == ("connector_description", "my-file-source", "source")
    assert [task["state"] for task in shown["tasks"]] == ["RUNNING"]
    consumer = Consumer({"bootstrap.servers": KAFKA, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    records = consumer.consume(2, LIMIT_SECONDS)
    consumer.close()
    assert [record.value() for record in records] == [b"first", b"second"]

    [listed] = execute("SHOW SOURCE CONNECTORS")["results"]
    mine = [one for one in listed["connectors"] if one["home"] == cluster.name]
    assert [(one["name"], one["connector_class"], one["state"]) for one in mine] == [
        ("my-file-source", FILE_SOURCE, "RUNNING (1/1 tasks RUNNING)")
    ]
    assert not [one for one in execute("SHOW SINK CONNECTORS")["results"][0]["connectors"] if one in mine]

    execute("PAUSE CONNECTOR my-file-source")
    wait_until(lambda: described(execute, "my-file-source")["state"] == "PAUSED")
    execute("RESUME CONNECTOR my-file-source; RESTART CONNECTOR my-file-source")
    wait_until(lambda: described(execute, "my-file-source")["state"] == "RUNNING")
    [dropped] = execute("DROP CONNECTOR my-file-source TERMINATE")["results"]
    assert "queries read topics, which stay" in dropped["message"]
    assert "my-file-source" not in requests.get(f"{URL}/connectors", timeout=LIMIT_SECONDS).json()
    actions = AuditEntry.objects.filter(object_name=f"{cluster.name}.my-file-source").values_list("action", flat=True)
    assert set(actions) == {f"connector.{action}" for action in ("create", "pause", "resume", "restart", "delete")}


def test_all_invalid_properties_are_named_at_once_without_their_values(execute: Execute, cluster: Connector) -> None:
    error = execute(
        f"""CREATE SINK CONNECTOR s WITH (connector.class='{FILE_SINK}', tasks.max='{SECRET}',
            errors.tolerance='{SECRET}');""",
        400,
    )["error"]
    assert error["message"] == "The properties are not valid; nothing was made."
    assert {"tasks.max", "errors.tolerance"} <= error["properties"].keys()
    assert SECRET not in str(error)
    assert error["statement"].count("'********'") == 2
    assert requests.get(f"{URL}/connectors", timeout=LIMIT_SECONDS).json() == []


def test_an_existing_name_is_a_conflict_or_a_warning(execute: Execute, cluster: Connector, tmp_path: Path) -> None:
    statement = f"CONNECTOR {{}} taken WITH (connector.class=FileStreamSource, file='{tmp_path}/x', topic=t)"
    execute("CREATE SOURCE " + statement.format(""))
    error = execute("CREATE SOURCE " + statement.format(""), 409)["error"]
    assert error["message"] == "Connector taken already exists."
    [result] = execute("CREATE SOURCE " + statement.format("IF NOT EXISTS"))["results"]
    assert result["warnings"] == ["Connector taken already exists."]
    [result] = execute("DROP CONNECTOR IF EXISTS other")["results"]
    assert result["warnings"] == ["There is no connector other."]
    assert execute("DROP CONNECTOR other", 404)["error"]["message"] == "There is no connector other."


def test_an_unknown_class_names_those_there_are(execute: Execute, cluster: Connector) -> None:
    error = execute("CREATE SOURCE CONNECTOR c WITH (connector.class='io.example.Nothing')", 400)["error"]
    [sentence] = error["properties"]["connector.class"]
    assert FILE_SOURCE in sentence
    missing = execute("CREATE SOURCE CONNECTOR c WITH (a=1)", 400)["error"]["properties"]["connector.class"][0]
    assert missing.startswith("This property is required. Available: ")
    assert FILE_SINK in missing
    assert "kafka" in missing
    wrong = execute(f"CREATE SINK CONNECTOR c WITH (connector.class='{FILE_SOURCE}')", 400)["error"]
    assert "write CREATE SOURCE CONNECTOR" in wrong["message"]


def test_a_class_that_is_broken_says_why(execute: Execute, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "The module connectors.sap cannot be loaded: ImportError: no library."
    monkeypatch.setitem(connectors._broken, "sap", reason)
    error = execute("CREATE SOURCE CONNECTOR c WITH (connector.class='sap')", 400)["error"]
    assert error["properties"] == {"connector.class": [f"The type 'sap' cannot be used. {reason}"]}


def test_a_worker_that_does_not_answer_is_named_soon(execute: Execute, workspace: Workspace) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        factories.make_connector(workspace, "kafka_connect", url=url)
        begun = time.monotonic()
        error = execute("CREATE SOURCE CONNECTOR c WITH (connector.class='a.B')", 502)["error"]
        assert time.monotonic() - begun < 60
        assert url in error["message"]
        [result] = execute("SHOW CONNECTORS")["results"]
        assert url in result["warnings"][0]
        assert execute("DESCRIBE CONNECTOR other", 502)["error"]["message"].startswith("There is no connector other")


def test_a_failed_task_shows_its_trace_without_secrets(execute: Execute, cluster: Connector) -> None:
    execute(
        f"""CREATE SINK CONNECTOR broken WITH (connector.class=FileStreamSink, topics='nothing-{time.time_ns()}',
            file='/nowhere/at/all?password={SECRET}', key.converter.password='{SECRET}');"""
    )
    wait_until(lambda: [task["state"] for task in described(execute, "broken")["tasks"]] == ["FAILED"])
    [task] = described(execute, "broken")["tasks"]
    assert "ConnectException: Couldn't find or create file '/nowhere/at/all?password=********" in task["trace"]
    assert task["worker"] == URL.removeprefix("http://")
    assert SECRET not in str(described(execute, "broken"))


def test_own_connectors_are_the_same_objects_everywhere(
    execute: Execute, client: APIClient, workspace: Workspace
) -> None:
    execute("CREATE SECRET token AS 'planted-secret-of-sql'")
    execute(
        """CREATE SINK CONNECTOR erp WITH (connector.class=http, url='http://127.0.0.1:9/x',
           authentication.type=bearer, authentication.token='${secret:token}');"""
    )
    connector = Connector.objects.get(workspace=workspace, name="erp")
    assert connection_with_secrets(connector)["authentication"]["token"] == SECRET
    [listed] = [one for one in client.get("/api/v1/connectors/").json()["results"] if one["name"] == "erp"]
    assert listed["connection"]["authentication"]["token"] == "********"
    [shown] = execute("SHOW CONNECTORS")["results"]
    own = {"name": "erp", "home": "Headrace", "direction": "both", "connector_class": "http", "state": "READY"}
    assert own in shown["connectors"]
    pipeline = factories.make_pipeline(workspace, connector)
    assert described(execute, "ERP")["used_by"] == [pipeline.name]
    assert "no pipeline" in execute("PAUSE CONNECTOR erp", 400)["error"]["message"]
    assert pipeline.name in execute("DROP CONNECTOR erp", 409)["error"]["message"]
    pipeline.delete()
    execute("DROP CONNECTOR erp")
    assert not Connector.objects.filter(name="erp").exists()


def test_own_connectors_name_every_invalid_property(execute: Execute) -> None:
    error = execute(f"CREATE SINK CONNECTOR db WITH (connector.class=sql, port=x, password='{SECRET}', nothing=1)", 400)
    assert {"host", "database", "port", "nothing"} <= error["error"]["properties"].keys()
    assert SECRET not in str(error)
    clash = execute("CREATE SINK CONNECTOR a WITH (connector.class=http, url='http://127.0.0.1/', url.x=1)", 400)
    assert "url.x" in clash["error"]["properties"]


def test_nothing_of_a_secret_is_kept_or_shown(execute: Execute, client: APIClient, workspace: Workspace) -> None:
    execute(f"CREATE SECRET p AS '{SECRET}'")
    assert execute("SHOW SECRETS")["results"][0]["names"] == ["p"]
    assert execute(f"CREATE SECRET p AS '{SECRET}'", 409)["error"]["message"].startswith("There is a secret p already")
    execute(f"CREATE OR REPLACE SECRET p AS '{SECRET}'")
    execute(f"CREATE SECRET p AS '{SECRET}", 400)
    execute(f"CREATE SINK CONNECTOR c WITH (connector.class=http, x='{SECRET}', url='${{secret:q}}')", 400)
    execute("DROP SECRET p")
    assert execute("DROP SECRET p", 404)["error"]["message"] == "There is no secret p."
    history = client.get("/api/v1/sql/history/")
    assert SECRET not in str(history.json())
    assert [entry["text"] for entry in history.json()["results"]][-1] == "CREATE SECRET p AS '********'"
    assert SECRET not in str(list(SqlStatement.objects.values_list("text", "error")))
    assert SECRET not in str(list(AuditEntry.objects.values()))
    assert SqlStatement.objects.filter(workspace=workspace, error="").count() == 4


def test_a_missing_secret_is_named_at_its_property(execute: Execute) -> None:
    error = execute("CREATE SINK CONNECTOR c WITH (connector.class=http, url='${secret:q}')", 400)["error"]
    assert error["properties"] == {"url": ["There is no secret q: make it with CREATE SECRET."]}


def test_a_syntax_error_executes_nothing_and_says_where(execute: Execute, workspace: Workspace) -> None:
    answer = execute("CREATE SECRET p AS 'x';\nSHOW CONNECTERS;", 400)
    assert answer["results"] == []
    error = answer["error"]
    assert (error["line"], error["column"]) == (2, 6)
    assert "CONNECTORS" in error["expected"]
    assert execute("SHOW SECRETS")["results"][0]["names"] == []


def test_statements_stop_at_the_first_that_fails(execute: Execute) -> None:
    answer = execute("DEFINE n = 'p';\nCREATE SECRET ${n} AS 'x';\nDROP CONNECTOR nothing;\nDROP SECRET p", 404)
    assert [result["message"][:7] for result in answer["results"]] == ["Defined", "Created"]
    assert answer["error"]["line"] == 3
    assert execute("SHOW SECRETS")["results"][0]["names"] == ["p"]
    assert execute("DROP SECRET ${name}", name="p")["error"] is None


def test_the_three_dots_are_refused(execute: Execute) -> None:
    assert "three dots" in execute("CREATE SINK CONNECTOR c WITH (connector.class=http, ...)", 400)["error"]["message"]


@pytest.mark.parametrize(
    "text",
    [
        f"CREATE SINK CONNECTOR {'n' * 101} WITH (connector.class=http, url='http://127.0.0.1/')",
        "CREATE SINK CONNECTOR ` ` WITH (connector.class=http, url='http://127.0.0.1/')",
        f"CREATE SINK CONNECTOR c WITH (connector.class=http, {'a.' * 1000}b=1)",
        "CREATE SINK CONNECTOR c WITH (connector.class=http, 'headers.²'=1, '.'=2, 'url.'='x', ''=1)",
        f"CREATE SINK CONNECTOR c WITH (connector.class=sql, port={'9' * 4000})",
        f"CREATE SECRET {'n' * 101} AS 'x'",
        f"CREATE SECRET p AS '{'x' * 65537}'",
        f"DEFINE x = '{'x' * 30000}'; CREATE SINK CONNECTOR c WITH (connector.class=http, url='{'${x}' * 1000}')",
        f"CREATE SECRET p AS '{'x' * 60000}'; "
        f"CREATE SINK CONNECTOR c WITH (connector.class=http, url='{'${secret:p}' * 100}')",
    ],
)
def test_bad_input_is_refused_with_a_sentence_and_saves_nothing(
    execute: Execute, workspace: Workspace, text: str
) -> None:
    error = execute(text, 400)["error"]
    assert error["message"].endswith(".")
    assert not Connector.objects.filter(workspace=workspace).exists()


def test_secrets_are_sealed_again_with_a_new_key(execute: Execute, workspace: Workspace) -> None:
    execute("CREATE SECRET p AS 'planted-secret-of-sql'")
    [old] = SqlSecret.objects.values_list("sealed", flat=True)
    assert SECRET.encode() not in bytes(old)
    assert secrets_reseal() == (0, [])
    SqlSecret.objects.update(sealed=b"HR1 not a secret")
    assert secrets_reseal() == (0, ["SQL secret p"])
    error = execute("CREATE SINK CONNECTOR c WITH (connector.class=http, url='${secret:p}')", 409)["error"]
    assert error["message"].startswith("The secret p cannot be read")


def test_roles(client_of: Any, workspace: Workspace) -> None:
    def status(role: str, text: str) -> int:
        client = client_of(factories.add_member(workspace, role))  # type: ignore[arg-type]
        return int(client.post("/api/v1/sql/", {"text": text}, format="json").status_code)

    assert status("viewer", "SHOW CONNECTORS") == 200
    assert status("viewer", "CREATE SECRET p AS 'x'") == 403
    assert status("viewer", "RESTART CONNECTOR c") == 403
    assert status("operator", "RESTART CONNECTOR c") == 404
    assert status("editor", "CREATE SECRET p AS 'x'") == 200


def test_other_workspaces_have_secrets_connectors_and_history_of_their_own(execute: Execute, client_of: Any) -> None:
    other = client_of(factories.admin_of(factories.make_workspace()))
    execute("CREATE SECRET p AS 'x'; CREATE SINK CONNECTOR erp WITH (connector.class=http, url='http://127.0.0.1/')")
    answer = other.post("/api/v1/sql/", {"text": "SHOW SECRETS; SHOW CONNECTORS; DESCRIBE erp"}, format="json").json()
    assert [result.get("names", result.get("connectors")) for result in answer["results"]] == [[], []]
    assert answer["error"]["message"] == "There is no connector erp."
    assert len(other.get("/api/v1/sql/history/").json()["results"]) == 3


def test_headraces_own_classes_say_in_which_direction_they_go(execute: Execute) -> None:
    [shown] = execute("SHOW CONNECTOR PLUGINS")["results"]
    directions = {plugin["connector_class"]: plugin["direction"] for plugin in shown["plugins"]}
    own = {"postgres_cdc": "source", "collection": "sink", "kafka": "both", "webhook": "none"}
    assert own.items() <= directions.items()
