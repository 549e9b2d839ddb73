"""The input task, as far as it needs no server."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from backend.domain.capabilities import DeliveryError, ReadBatch, Reading
from backend.domain.connector import RuntimeConnector, connectors
from backend.domain.inputs.connector import ConnectorInput
from spark_jobs.streaming.input_reader import InputReader

SECRET = "planted-password-of-lines"


async def test_an_error_of_an_input_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    use = ConnectorInput(connector=uuid4(), options={"file": "orders"})
    lines = RuntimeConnector(type="toy_lines", connection={"folder": "/tmp", "passwords": [SECRET]})
    runtime = SimpleNamespace(
        snapshot=SimpleNamespace(config=SimpleNamespace(input=use)), connectors={use.connector: lines}
    )

    async def of_pipeline(*_: Any) -> Any:
        return runtime

    async def refuse(_: Any) -> None:
        raise DeliveryError("login", f"The server says that {SECRET} is wrong.", retryable=True)

    reader = connectors.get("toy_lines").capability(ReadBatch)
    assert reader is not None
    monkeypatch.setattr(reader, "open", refuse)
    services = cast(Any, SimpleNamespace(config=SimpleNamespace(runtime=of_pipeline), calls=asyncio.Semaphore()))
    lease = cast(Any, SimpleNamespace(pipeline_id="p", version=1))
    with pytest.raises(DeliveryError, match="wrong") as failed:
        async with InputReader(lease, Reading.BATCHING, services)._opened():
            pass
    assert SECRET not in str(failed.value)
