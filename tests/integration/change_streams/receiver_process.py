"""The reference receiver as its user starts it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import requests

from backend.settings import ROOT
from tests.ports import free_ports
from tests.waiting import LIMIT_SECONDS, answers, wait_until


class ReceiverProcess:
    """``manage.py cdc_receiver``."""

    def __init__(self, folder: Path) -> None:
        self.journal = folder / "journal"
        [port] = free_ports(1)
        self.url = f"http://127.0.0.1:{port}/"
        command = [sys.executable, str(ROOT / "manage.py"), "cdc_receiver", "--listen", f"127.0.0.1:{port}"]
        self._command = [*command, "--journal", str(self.journal)]

    def start(self) -> None:
        self._process = subprocess.Popen(self._command)
        wait_until(lambda: answers(self.url), timeout=120)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def shown(self) -> dict[str, Any]:
        return dict(requests.get(self.url, timeout=LIMIT_SECONDS).json())

    def messages(self) -> list[Any]:
        batches = [json.loads(line) for line in self.journal.read_text().splitlines()]
        return [message.get("progress") or message["updates"] for batch in batches for message in batch]
