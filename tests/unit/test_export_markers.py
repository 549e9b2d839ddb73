"""What is stored beside the file of an export: the marker comes last, and the file counts as stored after it."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from backend.connectors.local_files import LocalExport, LocalFilesConnection
from backend.connectors.parts.files.exporting import ExportFilesOptions
from backend.domain.capabilities import DeliveryError
from backend.domain.export_policy import ExportPolicy
from backend.exports.writer import ExportWriter
from backend.manager_api.exports import HeldExport
from tests.infra import FILES_ROOT

NAME = "a/00000001.csv.gz"


class Committing:
    """An export that is written and only has to be made visible."""

    def __init__(self) -> None:
        folder = uuid.uuid4().hex
        self.path = FILES_ROOT / folder
        self.path.mkdir(parents=True)
        self.store = LocalExport(LocalFilesConnection(folder=folder), ExportFilesOptions())
        self.seen: dict[str, list[str]] = {}
        self._writer = ExportWriter(
            client=cast(Any, None),
            config=cast(Any, None),
            staging=cast(Any, None),
            recorder=cast(Any, None),
            at=self._at,
        )
        self._export = HeldExport("e", "t", "p", 1, "files", NAME, [], None, {"rows": 1}, False)

    async def begin(self) -> None:
        self._export.upload = await self.store.begin(NAME)
        await self.store.write(self._export.upload, 1, b"1")

    async def commit(self, **policy: Any) -> None:
        fields = {"name": "a/{number}", "format": "csv", "compression": "gzip", **policy}
        await self._writer._commit(self._export, self.store, ExportPolicy.model_validate(fields))

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.path)) for path in self.path.rglob("*") if path.is_file())

    def _at(self, step: str) -> None:
        self.seen[step] = self.files()


@pytest.fixture
async def committing(tmp_path: Path) -> AsyncIterator[Committing]:
    export = Committing()
    await export.store.open()
    await export.begin()
    yield export
    await export.store.close()


@pytest.mark.parametrize(
    ("marker", "path"),
    [
        ("{name}.done", "a/00000001.csv.gz.done"),
        ("{stem}.ok", "a/00000001.ok"),
        ("_SUCCESS", "a/_SUCCESS"),
    ],
)
async def test_the_marker_appears_once_all_else_is_there(committing: Committing, marker: str, path: str) -> None:
    manifest = f"{NAME}.manifest.json"
    await committing.commit(manifest_file=True, marker=marker)
    assert committing.seen == {
        "file_committed": [NAME],
        "manifest_committed": [NAME, manifest],
        "marker_committed": sorted([NAME, manifest, path]),
    }
    assert (committing.path / path).read_bytes() == b""


async def test_a_repeat_stores_what_is_missing_and_changes_nothing_else(committing: Committing) -> None:
    await committing.commit(marker="{name}.done")
    marker = committing.path / f"{NAME}.done"
    await committing.commit(marker="{name}.done")
    assert committing.files() == [NAME, f"{NAME}.done"]
    marker.unlink()
    await committing.commit(marker="{name}.done")
    assert committing.files() == [NAME, f"{NAME}.done"]
    assert (committing.path / NAME).read_bytes() == b"1"


async def test_without_its_marker_a_file_is_not_stored(committing: Committing) -> None:
    (committing.path / f"{NAME}.done").mkdir(parents=True)
    with pytest.raises(DeliveryError):
        await committing.commit(marker="{name}.done")
    assert "marker_committed" not in committing.seen


async def test_without_a_marker_there_is_none(committing: Committing) -> None:
    await committing.commit()
    assert committing.files() == [NAME]
