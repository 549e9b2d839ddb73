"""Uploads that nobody will go on with are removed before a file is written."""

import os
import time
import uuid
from pathlib import Path
from typing import Any, cast

import pytest

from backend.connectors.local_files import LocalExport, LocalFilesConnection
from backend.connectors.parts.files.exporting import ExportFilesOptions
from backend.domain.capabilities import DeliveryError
from backend.domain.pipeline import OutputConfig, RuntimeOutput
from backend.exports.writer import ExportWriter
from backend.manager_api.exports import HeldExport
from tests.infra import FILES_ROOT

DAY = 86_400


class Manager:
    """What the manager knows of uploads."""

    def __init__(self) -> None:
        self.left: list[tuple[str, Any]] = []
        self.used: list[Any] = []
        self.forgotten: list[tuple[str, Any]] = []
        self.asked = 0

    async def left_uploads(self, connector_id: str) -> list[tuple[str, Any]]:
        self.asked += 1
        return self.left

    async def forget_upload(self, export_id: str, upload: Any) -> None:
        self.forgotten.append((export_id, upload))

    async def unknown_uploads(self, uploads: list[Any]) -> list[Any]:
        return [upload for upload in uploads if not any(upload.items() <= used.items() for used in self.used)]


class Sweeping:
    """An output whose files lie in a folder of its own."""

    def __init__(self) -> None:
        folder = uuid.uuid4().hex
        self.path = FILES_ROOT / folder
        self.path.mkdir(parents=True)
        self.manager = Manager()
        self.store = LocalExport(LocalFilesConnection(folder=folder), ExportFilesOptions())
        config = OutputConfig.model_validate(
            {"name": "files", "connector": uuid.uuid4(), "files": {"name": "orders/{number}"}}
        )
        self._output = RuntimeOutput.model_construct(config=config)
        self._writer = ExportWriter(
            client=cast(Any, self.manager),
            config=cast(Any, None),
            staging=cast(Any, None),
            recorder=cast(Any, None),
            at=lambda step: None,
        )

    async def begun(self, age: float) -> Any:
        """An upload that was last written to so long ago."""
        upload = await self.store.begin("orders/00000001.jsonl")
        await self.store.write(upload, 1, b"{}")
        moment = time.time() - age
        os.utime(self._file(upload), (moment, moment))
        return upload

    def exists(self, upload: Any) -> bool:
        return self._file(upload).exists()

    def _file(self, upload: Any) -> Path:
        return self.path / upload["folder"] / upload["unfinished"]

    async def sweep(self) -> None:
        export = HeldExport("e", "t", "p", 1, "files", "orders/00000002.jsonl", [], None, None, False)
        await self._writer._sweep(export, self.store, self._output)


@pytest.fixture
async def sweeping() -> Any:
    swept = Sweeping()
    await swept.store.open()
    yield swept
    await swept.store.close()


async def test_only_old_uploads_that_no_export_goes_on_with_are_removed(sweeping: Sweeping) -> None:
    (sweeping.path / "orders").mkdir()
    lost, used, young = [await sweeping.begun(age) for age in (2 * DAY, 2 * DAY, DAY / 2)]
    sweeping.manager.used = [used]
    await sweeping.sweep()
    assert [sweeping.exists(upload) for upload in (lost, used, young)] == [False, True, True]


async def test_what_exports_have_given_up_is_removed_and_forgotten(sweeping: Sweeping) -> None:
    given_up = await sweeping.begun(0)
    sweeping.manager.left = [("another", given_up)]
    await sweeping.sweep()
    assert not sweeping.exists(given_up)
    assert sweeping.manager.forgotten == [("another", given_up)]


async def test_it_takes_place_once_a_day_for_an_output(sweeping: Sweeping) -> None:
    await sweeping.sweep()
    await sweeping.sweep()
    assert sweeping.manager.asked == 1


async def test_a_fault_of_it_holds_no_file_up_and_shows_no_secret(
    sweeping: Sweeping, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refused(upload: Any) -> None:
        raise DeliveryError("forbidden", "This is not permitted: s3cret-of-the-store.", retryable=False)

    monkeypatch.setattr(sweeping.store, "abort", refused)
    monkeypatch.setattr(sweeping.store, "secrets", lambda: ["s3cret-of-the-store"])
    given_up = await sweeping.begun(0)
    sweeping.manager.left = [("another", given_up)]
    await sweeping.sweep()
    assert sweeping.manager.forgotten == []
    assert "This is not permitted" in caplog.text
    assert "s3cret-of-the-store" not in caplog.text
