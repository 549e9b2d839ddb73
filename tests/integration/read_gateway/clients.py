"""Actions of tests as clients of the gateway."""

import subprocess
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from backend.runtime import class_archives
from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from tests.gateways import Gateways, Login, TestCollection
from tests.integration import received as common
from tests.waiting import LIMIT_SECONDS, wait_until


def config(nodes: Gateways, login: Login, **more: Any) -> dict[str, Any]:
    names = {name if name == "error_cb" else name.replace("_", "."): value for name, value in more.items()}
    base = {
        "bootstrap.servers": nodes.bootstrap,
        "group.id": uuid.uuid4().hex,
        "auto.offset.reset": "earliest",
        # A test waits for what it expects, not for the client's patience.
        "topic.metadata.refresh.interval.ms": 1000,
        "reconnect.backoff.max.ms": 500,
    }
    return base | login.librdkafka() | names


def admin(nodes: Gateways, login: Login) -> AdminClient:
    return AdminClient({"bootstrap.servers": nodes.bootstrap, **login.librdkafka()})


def wait_until_seen(nodes: Gateways, login: Login, *collections: TestCollection) -> None:
    """Nodes learn of new collections within about a second; here until every one knows them."""
    for node in nodes:
        client = AdminClient({"bootstrap.servers": node.address, **login.librdkafka()})
        wait_until(
            lambda client=client: (
                {c.topic for c in collections} <= client.list_topics(timeout=LIMIT_SECONDS).topics.keys()
            )
        )


def received(consumer: Consumer, count: int, seconds: float = 60.0) -> Counter[bytes]:
    return common.received(consumer, count, seconds)


def kcat(nodes: Gateways, login: Login, topic: str, *options: str) -> list[str]:
    """The command that writes what is in the topic."""
    settings = [part for pair in login.librdkafka().items() for part in ("-X", "=".join(pair))]
    return ["kcat", "-b", nodes.bootstrap, *settings, "-C", "-t", topic, "-o", "beginning", "-e", "-q", *options]


def java_tool(layout: Layout, main: str, *arguments: str, seconds: float = 90.0) -> subprocess.CompletedProcess[str]:
    """Runs one of Kafka's command-line tools."""
    home = java_home(layout)
    archive = class_archives.options(class_archives.archive(layout.jars, home, class_archives.KAFKA))
    command = [f"{home}/bin/java", "-Xmx256m", *archive, "-cp", f"{layout.jars.resolve()}/kafka/*", main, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)


def properties(login: Login, folder: Path, *more: str) -> str:
    """The path of a properties file for Java's clients."""
    path = folder / f"{uuid.uuid4().hex}.properties"
    path.write_text("\n".join([*login.java(), *more]) + "\n")
    return str(path)


def values(count: int, begin: int = 0) -> list[bytes]:
    return [b'{"number":%d}' % number for number in range(begin, begin + count)]
