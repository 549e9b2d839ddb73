"""Servers that only the tests use, downloaded once and verified against ``docker/NAME.sha256``."""

import hashlib
from pathlib import Path

from backend.runtime.jars import retrieve
from backend.runtime.layout import ROOT, Layout
from backend.runtime.versions import versions
from tests.exclusive import exclusive


def distribution(name: str, ivy: str, layout: Layout, java_home: Path) -> Path:
    """The archive named by the Ivy module description ``ivy``, whose configuration must be called ``name``."""
    digest, file_name = (ROOT / f"docker/{name}.sha256").read_text().split()
    archive = layout.var / name / name / file_name
    with exclusive("downloads"):
        if not archive.exists():
            extension = "tar.gz" if file_name.endswith(".tar.gz") else archive.suffix.removeprefix(".")
            retrieve(ivy.format(**versions()), layout.var / name, java_home, types=[extension], configurations=[name])
    with archive.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == digest, (
            f"The checksum of {archive} differs; delete the file and try again."
        )
    return archive
