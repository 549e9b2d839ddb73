"""Servers that only the tests use, downloaded once and verified against ``docker/NAME.sha256``."""

import hashlib
from pathlib import Path

from backend.runtime.jars import retrieve
from backend.runtime.layout import Layout
from backend.runtime.versions import versions
from backend.settings import ROOT
from tests.exclusive import exclusive


def distribution(name: str, ivy: str, layout: Layout, java_home: Path) -> Path:
    """The archive named by the Ivy module description ``ivy``, whose configuration must be called ``name``."""
    [archive] = distribution_files(name, ivy, layout, java_home)
    return archive


def distribution_files(name: str, ivy: str, layout: Layout, java_home: Path) -> list[Path]:
    """The same for a server that comes in several files."""
    lines = (ROOT / f"docker/{name}.sha256").read_text().splitlines()
    digests = {layout.var / name / name / file: digest for digest, file in map(str.split, lines)}
    with exclusive("downloads"):
        if not all(file.exists() for file in digests):
            types = {"tar.gz" if file.name.endswith(".tar.gz") else file.suffix.removeprefix(".") for file in digests}
            if "jar" in types:
                types.add("bundle")  # what some jars are called
            retrieve(ivy.format(**versions()), layout.var / name, java_home, types=sorted(types), configurations=[name])
    for path, digest in digests.items():
        with path.open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == digest, (
                f"The checksum of {path} differs; delete the file and try again."
            )
    return list(digests)
