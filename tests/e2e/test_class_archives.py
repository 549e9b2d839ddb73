"""Kafka and Spark start with archives of their classes, and as well without."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from backend.runtime import class_archives
from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from backend.settings import ROOT
from tests.installation import Installation
from tests.waiting import LIMIT_SECONDS


def new_uuid(layout: Layout, *options: str) -> list[str]:
    """What Kafka's tool says that makes one, the last line."""
    command = [str(java_home(layout) / "bin/java"), *options, "-cp", f"{layout.jars}/kafka/*"]
    tool = [*command, "kafka.tools.StorageTool", "random-uuid"]
    return subprocess.run(tool, capture_output=True, text=True, check=True).stdout.splitlines()


def test_most_classes_come_from_the_archive(project_layout: Layout) -> None:
    home = java_home(project_layout)
    assert class_archives.missing(project_layout, home) == []
    archived = class_archives.options(class_archives.archive(project_layout.jars, home, class_archives.KAFKA))
    loaded = new_uuid(project_layout, *archived, "-Xlog:class+load")
    from_archive = [line for line in loaded if line.endswith("source: shared objects file (top)")]
    from_jars = [line for line in loaded if ".jar" in line]
    assert len(from_archive) > 10 * len(from_jars)


def test_what_is_no_archive_is_left_aside(project_layout: Layout, tmp_path: Path) -> None:
    nothing = tmp_path / "kafka.jsa"
    nothing.touch()
    assert len(new_uuid(project_layout, *class_archives.options(nothing))[-1]) == len("VfoLPZoSSIOqWRcxfzGMNg")


def test_one_that_is_killed_leaves_no_half_of_an_archive(project_layout: Layout, tmp_path: Path) -> None:
    """Java does not start with that. One that was finished just before may be there."""
    jars = tmp_path / "jars"
    jars.mkdir()
    for name in (class_archives.KAFKA, class_archives.SPARK):
        (jars / name).symlink_to(project_layout.jars / name)
    making = [sys.executable, "-m", "backend.runtime.class_archives"]
    process = subprocess.Popen(making, env=os.environ | {"HEADRACE_VAR": str(tmp_path)}, cwd=ROOT)
    # An archive is written within a second, and wait_until looks no more often than that once it has waited for 20 s.
    while process.poll() is None and not list(jars.rglob("*.jsa")):
        time.sleep(0.01)
    for child in psutil.Process(process.pid).children(recursive=True):
        child.kill()
    process.kill()
    process.wait(LIMIT_SECONDS)
    for archive in jars.glob("*.jsa"):
        assert new_uuid(Layout(tmp_path), "-Xshare:on", *class_archives.options(archive))


def test_an_installation_starts_with_them(installation: Installation, project_layout: Layout) -> None:
    home, spark = java_home(project_layout), installation.spark()
    kafka = next(one["pid"] for one in installation.supervisor.processes() if one["name"] == "kafka")
    assert spark is not None
    for program, pid in ((class_archives.KAFKA, kafka), (class_archives.SPARK, spark.pid)):
        archive = class_archives.archive(project_layout.jars, home, program)
        assert str(archive) in {mapped.path for mapped in psutil.Process(pid).memory_maps()}
