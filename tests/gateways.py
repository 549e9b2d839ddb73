"""Nodes of the read gateway, each a separate process as an operator would start it, and collections to read."""

import os
import signal
import ssl
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from backend.apps.connectors.models import Connector
from backend.apps.workspaces.models import Workspace
from backend.apps.workspaces.services import api_key_create
from backend.collections.store import CollectionStore
from backend.collections.writer import CollectionWriter, NewDocument
from backend.settings import ROOT, platform_settings
from tests import factories
from tests.ports import free_ports
from tests.waiting import LIMIT_SECONDS, start_of, wait_for_processes


class GatewayNode:
    """One node. ``address`` is for Kafka's clients, ``http`` a URL."""

    def __init__(self, node_id: int, folder: Path, database_url: str, *, ca: str = "", **settings: str) -> None:
        port, http_port = free_ports(2)
        self.id = node_id
        self.address = f"127.0.0.1:{port}"
        self.http = f"{'https' if 'certificate' in settings else 'http'}://127.0.0.1:{http_port}"
        self._tls = ssl.create_default_context(cafile=ca) if ca else None
        self.log = folder / f"gateway{node_id}.log"
        names = {
            "node_id": str(node_id),
            "listen": self.address,
            "http_listen": f"127.0.0.1:{http_port}",
            **settings,
        }
        self._environment = {f"HEADRACE_GATEWAY_{name.upper()}": value for name, value in names.items()}
        self._environment |= {"HEADRACE_DATABASE_URL": database_url, "PYTHONUNBUFFERED": "1"}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, str(ROOT / "manage.py"), "read_gateway"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | self._environment)

    def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            with urllib.request.urlopen(f"{self.http}/health/ready", timeout=5, context=self._tls) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(LIMIT_SECONDS)
            self.process = None

    def kill(self) -> None:
        """After a failure, whatever state it is in."""
        self.stop(signal.SIGKILL)


class Gateways(list[GatewayNode]):
    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self)

    def wait_until_ready(self) -> None:
        wait_for_processes([start_of(f"gateway {node.id}", node.is_ready, node.process, node.log) for node in self])


@contextmanager
def gateways(folder: Path, database_url: str, count: int, *, ca: str = "", **settings: str) -> Iterator[Gateways]:
    """Runs nodes; ``settings`` are the gateway's, ``ca`` the authority of its certificate."""
    folder.mkdir(parents=True, exist_ok=True)
    nodes = Gateways(GatewayNode(number, folder, database_url, ca=ca, **settings) for number in range(1, count + 1))
    try:
        for node in nodes:
            node.start()
        nodes.wait_until_ready()
        yield nodes
    except BaseException:
        for node in nodes:
            print(node.log.read_text()[-3000:])
        raise
    finally:
        with ExitStack() as stack:  # one that does not stop leaves none of the others behind
            for node in nodes:
                stack.callback(node.kill)
            for node in nodes:
                node.stop()


@dataclass
class TestCollection:
    """A collection with a writer of documents. ``topic`` is its name."""

    __test__ = False

    connector: Connector
    topic: str
    partitions: int
    written: list[bytes] = field(default_factory=list)
    source: str = field(default_factory=lambda: uuid.uuid4().hex)

    def write(
        self, values: Sequence[bytes], *, keys: Sequence[bytes | None] | None = None, deleted: bool = False
    ) -> None:
        """Appends the values in one commit, to the partitions in turn."""
        at = len(self.written)
        documents = [
            NewDocument(
                at + number,
                (at + number) % self.partitions,
                keys[number] if keys else value[:16],
                value,
                deleted=deleted,
            )
            for number, value in enumerate(values)
        ]
        # As the stage that writes collections does, which makes the table with the first document.
        store = CollectionStore(platform_settings().collections_url)
        table = store.table(str(self.connector.workspace_id), str(self.connector.pk), partitions=self.partitions)
        CollectionWriter(table, self.source).append(documents, at + len(values))
        self.written.extend(values)


def make_collection(workspace: Workspace, partitions: int = 3, name: str = "", **connection: object) -> TestCollection:
    topic = name or f"c-{uuid.uuid4().hex[:12]}"
    connector = Connector.objects.create(
        workspace=workspace,
        name=topic,
        type="collection",
        connection={"partitions": partitions, **connection},
        schema_version=1,
        created_by=factories.admin_of(workspace),
    )
    return TestCollection(connector, topic, partitions)


def make_key(workspace: Workspace, *scopes: str) -> str:
    """The text of a new API key, by default one that may read."""
    _, text = api_key_create(
        workspace=workspace, actor=factories.admin_of(workspace), name="reader", scopes=scopes or ("read",)
    )
    return text


@dataclass(frozen=True)
class Login:
    """How a client of a test signs in."""

    user: str
    password: str
    mechanism: str = "PLAIN"
    protocol: str = "SASL_PLAINTEXT"
    ca: str = ""

    def librdkafka(self) -> dict[str, str]:
        config = {
            "security.protocol": self.protocol,
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.user,
            "sasl.password": self.password,
        }
        return config | ({"ssl.ca.location": self.ca} if self.ca else {})

    def kafka_python(self) -> dict[str, str]:
        config = {
            "security_protocol": self.protocol,
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }
        return config | ({"ssl_cafile": self.ca} if self.ca else {})

    def java(self) -> list[str]:
        kind = "plain.PlainLoginModule" if self.mechanism == "PLAIN" else "scram.ScramLoginModule"
        module = f"org.apache.kafka.common.security.{kind}"
        lines = [
            f"security.protocol={self.protocol}",
            f"sasl.mechanism={self.mechanism}",
            f'sasl.jaas.config={module} required username="{self.user}" password="{self.password}";',
        ]
        if self.ca:
            lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={self.ca}"]
        return lines


def reading_workspace() -> tuple[Workspace, Login]:
    """A new workspace, and how its readers sign in."""
    workspace = factories.make_workspace()
    return workspace, Login(workspace.slug, make_key(workspace))
