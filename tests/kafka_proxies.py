"""Proxies in front of a cluster, each a separate process as an operator would start it."""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from backend.settings import ROOT
from tests.kafka_cluster import KafkaCluster
from tests.ports import free_ports
from tests.waiting import LIMIT_SECONDS, start_of, wait_for_processes


class ProxyProcess:
    """One proxy. ``address`` is that for clients; ``operations`` is a URL."""

    def __init__(self, config: dict[str, Any], folder: Path, number: int) -> None:
        self.address: str = config["listen"]
        self.operations = f"http://{config['operations']}"
        self.log = folder / f"proxy{number}.log"
        self._config = folder / f"proxy{number}.yaml"
        self._config.write_text(yaml.safe_dump(config))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, str(ROOT / "manage.py"), "kafka_proxy", "--config", str(self._config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"PYTHONUNBUFFERED": "1"})

    def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.get("/ready")[0] == 200
        except OSError:
            return False

    def get(self, path: str) -> tuple[int, str]:
        with urllib.request.urlopen(self.operations + path, timeout=LIMIT_SECONDS) as answer:
            return answer.status, answer.read().decode()

    def metric(self, name: str) -> float:
        """The sum of a metric's values; ``name`` may include labels."""
        lines = self.get("/metrics")[1].splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(LIMIT_SECONDS)
            self.process = None


class Proxies(list[ProxyProcess]):
    @property
    def bootstrap(self) -> str:
        return ",".join(proxy.address for proxy in self)

    def wait_until_ready(self) -> None:
        wait_for_processes([start_of(proxy.address, proxy.is_ready, proxy.process, proxy.log) for proxy in self])


@contextmanager
def proxies(
    cluster: KafkaCluster,
    folder: Path,
    count: int,
    *,
    racks: bool = False,
    listener: str = "PLAINTEXT",
    **settings: Any,
) -> Iterator[Proxies]:
    """Runs proxies. With ``racks`` each proxy is in the rack of one broker."""
    folder.mkdir(parents=True, exist_ok=True)
    ports = free_ports(2 * count)
    nodes = [
        {
            "address_for_clients": f"127.0.0.1:{port}",
            "address_for_peers": f"127.0.0.1:{port}",
            "broker_id": 100 + number,
            **({"rack": f"rack{number % cluster.size + 1}"} if racks else {}),
        }
        for number, port in enumerate(ports[:count])
    ]
    running = Proxies(
        ProxyProcess(
            {
                "first_contact_points": cluster.bootstrap(listener).split(","),
                "proxy_nodes": nodes,
                "local_broker_id": 100 + number,
                "listen": f"127.0.0.1:{ports[number]}",
                "operations": f"127.0.0.1:{ports[count + number]}",
                "check_peers_delay_ms": 500,
                **settings,
            },
            folder,
            number,
        )
        for number in range(count)
    )
    try:
        for proxy in running:
            proxy.start()
        running.wait_until_ready()
        yield running
    finally:
        for proxy in running:
            proxy.stop()
