"""Builds the documentation as a site with Zensical, and the console serves it at ``/docs/``: ``make docs``."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from backend.runtime.digests import digest_of
from backend.runtime.documentation_pages import conditions_page, reasons_page, steps_page
from backend.settings import ROOT

_SITE = ROOT / "site"
"""Its folder ``docs`` is what the console serves."""
_STAMP = _SITE / "built-from"
_CONFIG = "mkdocs.yml"
_RESULTS = "tests/bench/results"
_FAVICON = "frontend/public/favicon.svg"
_BUILT_FROM = ("docs", _CONFIG, "backend/domain", "backend/runtime", _RESULTS, _FAVICON, "frontend/src/locales")


def ensure_documentation() -> None:
    """Builds the site if what it is made of has changed since the last build. The console works without it."""
    if not _STAMP.exists() or _STAMP.read_text() != digest_of(ROOT, _BUILT_FROM):
        print("Building the documentation.", flush=True)
        if not _build():
            print("The console starts without it.", flush=True)


def _build(*, strict: bool = False) -> bool:
    """Whether it succeeded; otherwise the former site stays. ``strict`` refuses broken links, and pages that the
    navigation lacks."""
    digest = digest_of(ROOT, _BUILT_FROM)
    with TemporaryDirectory(prefix="headrace-docs-") as folder:
        source = Path(folder)
        _write_source(source)
        if strict and (pages := _outside_navigation(source)):
            print(f"The navigation in {_CONFIG} lacks {', '.join(pages)}.")
            return False
        command = [sys.executable, "-m", "zensical", "build", "-f", str(source / _CONFIG), *["--strict"] * strict]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            print(result.stdout + result.stderr)
            return False
        shutil.rmtree(_SITE, ignore_errors=True)
        shutil.copytree(source / "site", _SITE)
    _STAMP.write_text(digest)
    return True


def _write_source(folder: Path) -> None:
    """The pages of the project, the generated ones, the results of benchmarks, and the configuration."""
    docs = folder / "docs"
    shutil.copytree(ROOT / "docs", docs)
    shutil.copytree(ROOT / _RESULTS, docs / "benchmarks")
    shutil.copy(ROOT / _FAVICON, docs / "images")
    pages = {"steps": steps_page(), "conditions": conditions_page(), "reasons": reasons_page()}
    for name, text in pages.items():
        (docs / "reference" / f"{name}.md").write_text(text)
    for page in docs.rglob("*.md"):
        upwards = "../" * (len(page.relative_to(docs).parts) - 1)
        page.write_text(re.sub(rf"\]\((?:\.\./)+{_RESULTS}/", f"]({upwards}benchmarks/", page.read_text()))
    config = yaml.safe_load((ROOT / _CONFIG).read_text())
    config["nav"] = _expanded(config["nav"], docs)
    (folder / _CONFIG).write_text(yaml.safe_dump(config, sort_keys=False))


def _outside_navigation(folder: Path) -> list[str]:
    docs, configuration = folder / "docs", (folder / _CONFIG).read_text()
    pages = sorted(page.relative_to(docs).as_posix() for page in docs.rglob("*.md"))
    return [page for page in pages if page not in configuration]


def _expanded(entries: Any, docs: Path) -> Any:
    """The navigation with the pages of each folder that it names."""
    match entries:
        case list():
            return [_expanded(entry, docs) for entry in entries]
        case dict():
            return {title: _expanded(entry, docs) for title, entry in entries.items()}
        case str() if (docs / entries).is_dir():
            return [page.relative_to(docs).as_posix() for page in sorted((docs / entries).glob("*.md"))]
    return entries


if __name__ == "__main__":
    sys.exit(0 if _build(strict=True) else 1)
