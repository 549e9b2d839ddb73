"""What something was built from, as a digest that tells whether it has to be built again."""

import hashlib
from collections.abc import Iterable
from pathlib import Path


def digest_of(root: Path, names: Iterable[str]) -> str:
    """Of the paths and contents of files, and of all files in folders, below the root. Python's own files are left
    out."""
    digest = hashlib.sha256()
    for path in (root / name for name in names):
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
