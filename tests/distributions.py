"""Servers that only the tests use, fetched once and checked against ``docker/NAME.sha256``."""

import hashlib
from pathlib import Path

from backend.runtime.jars import retrieve
from backend.runtime.layout import ROOT, Layout
from backend.runtime.versions import versions
from tests.exclusive import exclusive


def distribution(name: str, ivy: str, layout: Layout, java_home: Path) -> Path:
    """The archive that the Ivy module ``ivy`` names; its configuration is called ``name`` as well."""
    digest, file_name = (ROOT / f"docker/{name}.sha256").read_text().split()
    found = layout.var / name / name / file_name
    with exclusive("downloads"):
        if not found.exists():
            extension = "tar.gz" if file_name.endswith(".tar.gz") else found.suffix.removeprefix(".")
            retrieve(ivy.format(**versions()), layout.var / name, java_home, types=[extension], configurations=[name])
    with found.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == digest, f"{found} is not the expected file."
    return found
