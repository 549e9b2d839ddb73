"""Stages that plugins add: which are found, and that one that is broken stops nobody else. Each case runs in a process
of its own, since stages are found once."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backend.domain.registry import PLUGINS
from backend.domain.stages import STAGES, Form, Stage
from tests.infra import STAGE_TOYS

OWN = [stage.name for stage in STAGES]
ENTRY = """
from backend.domain.stages import Form, Stage
STAGE = Stage("{name}", Form.{form}, priority=20{rest})
"""
READS = ', topic="firehose_own", next=("firehose_own_next", "firehose_filter")'
FOUND = """
import json, sys
from backend.domain.stages import BROKEN, STAGES, all_topics
print(json.dumps({"names": [s.name for s in STAGES], "topics": all_topics(), "broken": BROKEN,
                  "loaded": sorted(sys.modules)}))
"""
MODULE = """
import json
from backend.domain.stages import stage_named
from spark_jobs.jobs import module_of
print(json.dumps([module_of(stage_named(name)).__file__ for name in ("filtering", "own")]))
"""


def entry(name: str = "own", form: str = "LANE", rest: str = READS) -> str:
    return ENTRY.format(name=name, form=form, rest=rest)


def answer_of(program: str, plugins: Path) -> Any:
    environment = os.environ | {PLUGINS: str(plugins)}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return json.loads(ended.stdout)


def added(folder: Path, **files: str) -> Any:
    """What is found with these entries in a plugin's folder."""
    (folder / "stages").mkdir()
    for name, source in files.items():
        (folder / "stages" / f"{name}.py").write_text(source)
    found = answer_of(FOUND, folder)
    found["names"] = found["names"][len(OWN) :]
    return found


def test_an_entry_is_a_stage_and_its_topics_are_made(tmp_path: Path) -> None:
    found = added(tmp_path, own=entry())
    assert (found["names"], found["broken"]) == (["own"], [])
    assert found["topics"][-2:] == ["firehose_own", "firehose_own_next"]
    assert len(found["topics"]) == len(set(found["topics"]))
    assert not {"django", "pyspark"} & set(found["loaded"])


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero."),
        ("", "AttributeError: module 'backend.domain.stages.bad' has no attribute 'STAGE'."),
        (entry("other"), "ValueError: the stage needs the name of its file, which no other has, not 'other'."),
        (entry("bad", rest=', topic="orders"'), "the name of the topic 'orders' does not begin with 'firehose_'."),
        (entry("bad", rest=""), "ValueError: The stage bad has the form lane, which needs a topic."),
        (entry("bad", "INPUT"), "ValueError: The stage bad has the form input, which needs a reading."),
    ],
    ids=["raises", "without an entry", "another name", "another topic", "no topic", "nothing to read"],
)
def test_a_broken_entry_is_named_and_affects_no_other(tmp_path: Path, source: str, reason: str) -> None:
    found = added(tmp_path, bad=source, own=entry())
    assert found["names"] == ["own"]
    [sentence] = found["broken"]
    assert sentence.startswith("The module backend.domain.stages.bad cannot be loaded: ")
    assert sentence.endswith(reason)


def test_no_entry_takes_the_place_of_a_stage_of_headrace(tmp_path: Path) -> None:
    found = added(tmp_path, filtering=entry("filtering"))
    assert found["names"] == []
    assert "'filtering'" in found["broken"][0]


def test_a_stage_is_run_by_the_module_of_its_name(tmp_path: Path) -> None:
    added(tmp_path, own=entry())
    (tmp_path / "jobs").mkdir()
    for name in ("own", "filtering"):
        (tmp_path / "jobs" / f"{name}.py").write_text("")
    of_headrace, of_plugin = answer_of(MODULE, tmp_path)
    assert of_headrace.endswith("spark_jobs/jobs/filtering.py")
    assert of_plugin == str(tmp_path / "jobs/own.py")


def test_each_toy_stage_is_an_entry_and_its_module() -> None:
    found = answer_of(FOUND, STAGE_TOYS)
    assert found["broken"] == []
    assert set(found["names"]) - set(OWN) == {path.stem for path in (STAGE_TOYS / "stages").glob("*.py")}


@pytest.mark.parametrize("form", [form for form in Form if form is not Form.SQL])
def test_a_stage_that_reads_nothing_is_none(form: Form) -> None:
    with pytest.raises(ValueError, match="needs a"):
        Stage("own", form, priority=1)
