"""n8n for tests: a real one from npm, a large installation that is made once and kept in ``var``, or a stand-in of its
public API at the same address."""

import itertools
import json
import os
import shutil
import subprocess
import sys
import uuid
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import requests

from backend.runtime.node import npm_and_environment
from backend.runtime.versions import versions
from backend.settings import ROOT
from tests import n8n_stand_in as program
from tests.exclusive import exclusive
from tests.infra import PASSWORD, VAR, Server
from tests.ports import free_ports
from tests.waiting import LIMIT_SECONDS

[PORT] = free_ports(1)
URL = f"http://127.0.0.1:{PORT}"
SCOPES = [
    *(f"workflow:{action}" for action in ("create", "read", "update", "delete", "list", "activate", "deactivate")),
    *(f"credential:{action}" for action in ("create", "delete")),
    *(f"execution:{action}" for action in ("read", "list")),
]


def installed() -> tuple[str, Path]:
    """The command of Node, and n8n's program. The first installation takes some minutes and 1.6 GB."""
    folder = ROOT / "var/n8n"
    package = {
        "private": True,
        "dependencies": {"n8n": versions()["N8N_VERSION"]},
        # n8n asks for a build of it that is not in npm's registry.
        "overrides": {"xlsx": "0.18.5"},
    }
    npm, environment = npm_and_environment()
    with exclusive("n8n"):
        stamp, wanted = folder / "installed.json", json.dumps(package)
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            (folder / "package.json").write_text(wanted)
            subprocess.run([*npm, "install", "--no-audit", "--no-fund"], cwd=folder, env=environment, check=True)
            stamp.write_text(wanted)
    node = shutil.which("node", path=environment["PATH"])
    assert node is not None
    return node, folder / "node_modules/n8n/bin/n8n"


def n8n_server() -> Server:
    """Not yet started."""
    node, installed_program = installed()
    settings = {
        "HOME": str(VAR),
        "PATH": os.environ["PATH"],
        "N8N_USER_FOLDER": mkdtemp(prefix="n8n-", dir=VAR),
        "N8N_PORT": str(PORT),
        "N8N_LISTEN_ADDRESS": "127.0.0.1",
        "N8N_DIAGNOSTICS_ENABLED": "false",
        "N8N_VERSION_NOTIFICATIONS_ENABLED": "false",
        "N8N_TEMPLATES_ENABLED": "false",
        "N8N_RUNNERS_ENABLED": "false",
        "N8N_SECURE_COOKIE": "false",
        "EXECUTIONS_DATA_PRUNE": "false",
    }
    command = [
        "env",
        "-i",
        *(f"{name}={value}" for name, value in settings.items()),
        node,
        str(installed_program),
        "start",
    ]
    return Server("n8n", command, _ready)


def stand_in() -> Server:
    """Not yet started."""
    return Server("n8n-stand-in", [sys.executable, program.__file__, str(PORT)], _ready)


def _ready() -> bool:
    """It answers with a text while it starts."""
    try:
        return "data" in requests.get(f"{URL}/rest/settings", timeout=2).json()
    except requests.RequestException:
        return False


@lru_cache
def api_key() -> str:
    """Of the owner, who is made first."""
    session = requests.Session()
    owner = {"email": "owner@example.com", "firstName": "O", "lastName": "W", "password": f"{PASSWORD}-A1"}
    session.post(f"{URL}/rest/owner/setup", json=owner, timeout=LIMIT_SECONDS).raise_for_status()
    asked = {"label": "headrace", "expiresAt": None, "scopes": SCOPES}
    answer = session.post(f"{URL}/rest/api-keys", json=asked, timeout=LIMIT_SECONDS)
    answer.raise_for_status()
    key: str = answer.json()["data"]["rawApiKey"]
    return key


def asked(method: str, path: str, **arguments: object) -> requests.Response:
    """A request to the public API."""
    headers = {"X-N8N-API-KEY": api_key()}
    return requests.request(method, f"{URL}/api/v1/{path}", headers=headers, timeout=LIMIT_SECONDS, **arguments)  # type: ignore[arg-type]


def webhook_workflow(path: str, *others: dict[str, Any]) -> dict[str, Any]:
    """A workflow that begins with a webhook, whose request's items are those of the node Items."""
    start = {
        "name": "Webhook",
        "type": "n8n-nodes-base.webhook",
        "typeVersion": 2,
        "webhookId": str(uuid.uuid4()),
        "parameters": {"path": path, "httpMethod": "POST", "responseMode": "onReceived", "options": {}},
    }
    split = {
        "name": "Items",
        "type": "n8n-nodes-base.splitOut",
        "typeVersion": 1,
        "parameters": {"fieldToSplitOut": "body.items", "options": {}},
    }
    nodes = [start, *others, split]
    names = [node["name"] for node in nodes]
    return {
        "name": "Orders",
        "nodes": nodes,
        "connections": {
            name: {"main": [[{"node": following, "type": "main", "index": 0}]]}
            for name, following in itertools.pairwise(names)
        },
        "settings": {"executionOrder": "v1", "callerPolicy": "any"},
        "pinData": {},
        "id": "of another server",
    }
