import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.settings import ROOT
from tests.contract.sources import trees_in

CONSOLE = ("apps", "config", "runtime")
"""Packages of ``backend`` that may use Django."""


def modules(folder: Path) -> Iterator[tuple[str, str]]:
    """The name and source of each module below the folder."""
    for path in sorted(folder.rglob("*.py")):
        yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path.read_text()


DOMAIN = [name for name, _ in modules(ROOT / "backend/domain")]
DATA_PLANE = [name for name, _ in modules(ROOT / "backend") if name.split(".")[1:2] not in [[one] for one in CONSOLE]]
SPARK_JOBS = [name for name, _ in modules(ROOT / "spark_jobs")]
WITHOUT_SPARK = [
    name
    for name, source in modules(ROOT / "spark_jobs/streaming")
    if not any(line.startswith(("import pyspark", "from pyspark")) for line in source.splitlines())
]
"""What runs in a lane task, which starts faster without Spark's driver."""


@pytest.mark.parametrize(
    ("names", "forbidden"),
    [
        (DOMAIN, ("django", "pyspark", "redis", "grpc", "confluent_kafka", "aiohttp")),
        (DATA_PLANE, ("django", "pyspark")),
        (SPARK_JOBS, ("django",)),
        (WITHOUT_SPARK, ("pyspark",)),
    ],
    ids=["domain", "data plane", "Spark jobs", "lane tasks"],
)
def test_importing_loads_nothing_forbidden(names: list[str], forbidden: tuple[str, ...]) -> None:
    assert len(names) > 5
    script = f"""
import importlib, sys
for name in {names!r}:
    importlib.import_module(name)
    loaded = set(sys.modules) & set({forbidden!r})
    assert not loaded, f"{{name}} loads {{loaded}}"
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_connector_imports_another() -> None:
    """What several need is in ``backend.connectors.parts``."""
    crossing = []
    for path, tree in trees_in("backend/connectors").items():
        own = path.parts[2].removesuffix(".py")
        for node in ast.walk(tree):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for module in modules:
                if module.startswith("backend.connectors.") and module.split(".")[2] not in (own, "parts"):
                    crossing.append(f"{path} imports {module}")
    assert crossing == []
