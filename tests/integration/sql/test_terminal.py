"""The terminal client, against a running console."""

import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from django.core.management import call_command
from django.core.management.base import CommandError
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console

from backend.apps.sql.terminal import Client, MaskedHistory, UnreachableError, session
from backend.apps.workspaces.models import Scope
from backend.apps.workspaces.services import api_key_create
from backend.config.asgi import django_application
from tests import factories
from tests.infra import Server
from tests.waiting import wait_until

SECRET = "planted-secret-of-terminal"


@pytest.fixture
def console(transactional_db: None) -> Iterator[str]:
    """The address of the console, served as in an installation: what is streamed needs that."""
    config = uvicorn.Config(django_application, port=0, lifespan="off", log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_until(lambda: server.started)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def key(transactional_db: None) -> str:
    workspace = factories.make_workspace()
    scopes = [Scope.READ, Scope.WRITE]
    actor = factories.admin_of(workspace)
    return str(api_key_create(workspace=workspace, actor=actor, name="sql", scopes=scopes)[1])


@pytest.fixture
def key_file(key: str, tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_text(key)
    return file


def run(console: str, key_file: Path, text: str, **options: Any) -> str:
    output = io.StringIO()
    call_command("sql", url=console, key_file=key_file, execute=text, stdout=output, **options)
    return output.getvalue()


def test_statements_of_the_command_line_are_shown_as_tables(console: str, key_file: Path) -> None:
    made = run(console, key_file, "CREATE SINK CONNECTOR erp WITH (connector.class=http, url='http://127.0.0.1/')")
    assert "Created connector erp (http) in Headrace." in made
    shown = run(console, key_file, "SHOW CONNECTORS; DESCRIBE erp")
    assert "connector class" in shown
    assert shown.count("READY") == 2
    answer = json.loads(run(console, key_file, "SHOW CONNECTORS", json=True))
    assert answer["connectors"][0]["name"] == "erp"


def test_an_error_says_where_and_names_every_property(console: str, key_file: Path) -> None:
    output = io.StringIO()
    text = "CREATE SINK CONNECTOR db WITH (connector.class=sql, port=x)"
    with pytest.raises(CommandError, match="not all executed"):
        call_command("sql", url=console, key_file=key_file, execute=text, stdout=output)
    assert "Line 1, column 1: The properties are not valid" in output.getvalue()
    assert "port" in output.getvalue()
    assert "database" in output.getvalue()


def test_a_session_keeps_variables_and_a_history_without_secrets(console: str, key: str, tmp_path: Path) -> None:
    history, output = tmp_path / "history", io.StringIO()
    typed = (
        f"DEFINE n = 'p';\rCREATE SECRET ${{n}}\r AS '{SECRET}';\rSHOW SECRETS;\rCREATE SECRET x AS '{SECRET};\rexit\r"
    )
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(typed)
        session(Client(console, key), Console(file=output), history)
    assert "Created secret p" in output.getvalue()
    assert "The quotation mark that begins here has no end" in output.getvalue()
    assert SECRET not in output.getvalue()
    kept = history.read_text()
    assert SECRET not in kept
    assert "CREATE SECRET `${n}` AS '********';" in list(MaskedHistory(str(history)).load_history_strings())


def test_a_console_that_does_not_answer_and_a_wrong_key_are_told(console: str, key: str) -> None:
    with pytest.raises(UnreachableError, match="unknown, expired or revoked"):
        list(Client(console, "hr_wrong").execute("SHOW SECRETS"))
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1/.* cannot be reached"):
        list(Client("http://127.0.0.1:1", key).execute("SHOW SECRETS"))
    with pytest.raises(UnreachableError, match="is not Headrace"):
        list(Client(f"{console}/nothing/", key).execute("SHOW SECRETS"))


def test_a_query_is_followed_until_its_reader_leaves(
    console: str, key: str, key_file: Path, kafka: Server, tmp_path: Path
) -> None:
    client, topic = Client(console, key), f"followed-{tmp_path.name}"
    made = f"CREATE STREAM v (id VARCHAR KEY, n INT) WITH (kafka_topic = '{topic}', partitions = 1)"
    assert [line["type"] for line in client.execute(made)] == ["message"]
    lines = client.execute("SELECT id, n * 10 AS tens FROM v EMIT CHANGES")
    announced = next(lines)
    assert [column["name"] for column in announced["columns"]] == ["id", "tens"]
    assert [line["message"] for line in client.execute("INSERT INTO v VALUES ('a', 7)")] == ["Inserted one row."]
    assert next(line["rows"] for line in lines if line["rows"]) == [["a", 70]]
    lines.close()  # as Ctrl-C does

    def queries() -> list[str]:
        [shown] = client.execute("SHOW QUERIES")
        return [query["id"] for query in shown["queries"]]

    wait_until(lambda: queries() == [], explain=queries)
    output = run(console, key_file, f"SELECT * FROM v; PRINT `{topic}` FROM BEGINNING LIMIT 1")
    assert output.count("1 row.") == 2
