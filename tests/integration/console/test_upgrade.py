"""An installation of a former release is migrated, with what was on its way."""

import json
import os
import subprocess
import sys
import uuid

import psycopg

from backend.runtime import servers
from backend.settings import ROOT
from tests.infra import DATABASE_URL, Server

FORMER = ROOT / "tests/upgrade"


def test_data_and_messages_of_a_former_release_go_on(postgresql: Server, redis_server: Server) -> None:
    database = f"upgrade_{uuid.uuid4().hex}"
    url = f"{DATABASE_URL.rsplit('/', 1)[0]}/{database}"
    with psycopg.connect(DATABASE_URL, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {database}")
    restore = [str(servers.postgresql_programs() / "psql"), "--quiet", "--set=ON_ERROR_STOP=1", f"--dbname={url}"]
    subprocess.run([*restore, f"--file={FORMER / 'database.sql'}"], check=True, stdout=subprocess.DEVNULL)
    environment = os.environ | {
        "HEADRACE_DATABASE_URL": url,
        "HEADRACE_SECRET_KEYS_FILE": str(FORMER / "secret-keys.json"),
    }
    subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity=0"], cwd=ROOT, env=environment, check=True)
    with (FORMER / "messages.json").open() as messages:
        found = subprocess.run(
            [sys.executable, "-m", "tests.upgrade"],
            stdin=messages,
            capture_output=True,
            cwd=ROOT,
            env=environment,
            check=False,
            text=True,
        )
    assert found.returncode == 0, found.stderr
    state = json.loads(found.stdout)
    assert state["secrets"]["authentication"]["password"] == "the-secret"
    assert state["secrets"]["secret_headers"] == {"X-Key": "another-secret"}
    assert state["uses"] == [1, 2]
    assert state["steps"] == ["rename", "http_call"]
    assert state["messages"] == [{"is_read": True, "next": "firehose_adapted", "outputs": ["out"]}] * 2
    assert state["dead_letters"] == ['{"n": 2}']
    assert state["stages"]
    assert state["needed"] == ["adapting", "adapting_slow", "adapting_transformer", "syndicating"]
    assert state["position"] == 17
