"""The Java program of the JDBC connector, as it is compiled."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backend.connectors.jdbc import program as program_module
from backend.connectors.jdbc.program import Program


def changed_at(classes: str) -> int:
    return Path(classes, "JdbcRows.class").stat().st_mtime_ns


def test_readers_of_a_process_compile_it_once(jdbc_drivers: str) -> None:
    program = Program()
    with ThreadPoolExecutor(4) as threads:
        [classes] = set(threads.map(program.classes, [jdbc_drivers] * 4))
    first = changed_at(classes)
    assert Path(program.classes(jdbc_drivers)) == Path(classes)
    assert changed_at(classes) == first


def test_it_is_compiled_again_when_its_folder_was_emptied(jdbc_drivers: str) -> None:
    program = Program()
    shutil.rmtree(program.classes(jdbc_drivers))
    assert changed_at(program.classes(jdbc_drivers))


def test_a_java_that_does_not_compile_it_is_told() -> None:
    with pytest.raises(OSError, match="could not be compiled"):
        Program().classes("/bin/false")


def test_a_java_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_module, "_COMPILE_SECONDS", 0.2)
    hanging = tmp_path / "java"
    hanging.write_text("#!/bin/sh\nexec /bin/sleep 600\n")
    hanging.chmod(0o700)
    with pytest.raises(OSError, match="not compiled within"):
        Program().classes(str(hanging))
