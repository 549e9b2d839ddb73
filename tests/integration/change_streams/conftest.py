from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.change_streams.receiver_process import ReceiverProcess


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[ReceiverProcess]:
    process = ReceiverProcess(tmp_path)
    try:
        process.start()
        yield process
    finally:
        process.kill()
