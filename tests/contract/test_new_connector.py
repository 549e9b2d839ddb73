"""What ``make new-connector`` writes passes every check and its own cases as it is, for each capability."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backend.runtime.new_connector import OFFERED, write_connector
from backend.settings import ROOT

COPIED = ("backend", "spark_jobs", "tests", "docs", "frontend/src/locales")
ALL = {
    "every_direction": ["deliver", "deliver_batch", "read_batch", "verify", "call"],
    "a_name_that_takes_every_permitted_letter": ["read_stream", "export", "register"],
}
EACH = {f"only_{name}": ["deliver", name] if name == "register" else [name] for name in OFFERED}
CONTRACT = [
    "tests/contract/test_connectors.py",
    "tests/contract/test_connector_secrets.py",
    "tests/contract/test_connector_suites.py",
    "tests/contract/test_form_texts.py",
    "tests/contract/test_message_texts.py",
    "tests/contract/test_reasons.py",
]
MYPY_CACHE = ".mypy_cache"
_AT_ONCE = 3
"""The cases mostly wait, for servers that hang."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of all that a connector touches."""
    for folder in COPIED:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md"):
        shutil.copy2(ROOT / file, tmp_path / file)
    return tmp_path


def failures(project: Path, *command: str) -> str:
    """What the command says when it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.parametrize("written", [ALL, pytest.param(EACH, marks=pytest.mark.long)], ids=["all", "each"])
def test_it_passes_every_check_and_its_cases(written: dict[str, list[str]], project: Path) -> None:
    for name, capabilities in written.items():
        write_connector(name, capabilities, project)
    # What mypy knows of the modules that are only imported, where it has run before.
    if (ROOT / MYPY_CACHE).exists():
        shutil.copytree(ROOT / MYPY_CACHE, project / MYPY_CACHE)
    connectors = [f"backend/connectors/{name}.py" for name in written]
    cases = [f"tests/integration/connectors/test_{name}.py" for name in written]
    python = [sys.executable, "-m"]
    commands = [
        *([*python, "pytest", "-q", file] for file in cases),
        [*python, "pytest", "-q", *CONTRACT, "-k", "not the_api"],
        [*python, "mypy", *connectors, *cases],
        [*python, "ruff", "check", "--no-cache", *connectors, *cases],
        [*python, "ruff", "format", "--no-cache", "--check", *connectors, *cases],
        [str(Path(sys.executable).with_name("lint-imports"))],
        [*python, "backend.runtime.reference", "docs"],
    ]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        said = list(pool.map(lambda command: failures(project, *command), commands))
    assert [text for text in said if text] == []
    assert all((project / f"docs/connectors/{name}.md").exists() for name in written)


def test_both_ways_together_have_every_capability() -> None:
    assert {name for names in ALL.values() for name in names} == OFFERED.keys()


def test_what_exists_is_not_written_again(project: Path) -> None:
    connector, cases, *_ = write_connector("amazon_sqs", ["deliver"], project)
    assert connector == project / "backend/connectors/amazon_sqs.py"
    assert cases == project / "tests/integration/connectors/test_amazon_sqs.py"
    with pytest.raises(FileExistsError, match=r"^backend/connectors/amazon_sqs\.py exists already"):
        write_connector("amazon_sqs", ["read_batch"], project)


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("http", "backend/connectors/http"),
        ("parts", "backend/connectors/parts"),
        ("http_tls", "tests/integration/connectors/test_http_tls.py"),
    ],
)
def test_nothing_is_written_beside_what_would_hide_it(name: str, taken: str, project: Path) -> None:
    with pytest.raises(FileExistsError, match=f"^{taken} exists already"):
        write_connector(name, ["deliver"], project)
    for written in (f"backend/connectors/{name}.py", f"docs/connectors/{name}.md"):
        assert (project / written).exists() == (ROOT / written).exists()
    assert (project / "README.md").read_text() == (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", ["", "../evil", "Amazon", "a-b", "a" * 41])
def test_a_name_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="write it like amazon_sqs"):
        write_connector(name, ["deliver"], tmp_path)


@pytest.mark.parametrize("name", ["class", "message", "deliver_batch", "queue", "hmac", "pytest"])
def test_a_name_that_its_code_uses_already_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="choose another name"):
        write_connector(name, ["deliver"], tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("capabilities", "said"),
    [
        ([], "verify +it can verify requests"),
        (["deliver", "collect"], "Name one or more"),
        (["read_batch", "read_stream"], "choose read_batch or read_stream"),
        (["register", "call"], "choose one of deliver, deliver_batch, read_batch, read_stream"),
    ],
)
def test_capabilities_that_do_not_go_together_are_refused(capabilities: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        write_connector("amazon_sqs", capabilities, tmp_path)
    assert list(tmp_path.iterdir()) == []
