"""The Java program that uses the drivers, which each process that starts it compiles once."""

import logging
import subprocess
import tempfile
import threading
from importlib.metadata import distribution
from pathlib import Path

log = logging.getLogger(__name__)

MAIN = "JdbcRows"
_SOURCES = sorted(Path(__file__).with_name("java").glob("*.java"))
_COMPILE_SECONDS = 120
"""All readers by JDBC of the process wait meanwhile. Compiling takes 2 s on a free core."""
_COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"
"""The command line of Janino, with which Spark compiles its own generated code."""


class Program:
    """The program's classes, in a folder that goes when the process ends."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._compiling = threading.Lock()

    def classes(self, java: str) -> str:
        """Their folder. Starting what is compiled takes a tenth of the time that compiling takes. Raises OSError."""
        with self._compiling:
            if self._folder is None or not _is_compiled(self._folder.name):  # systems empty folders of temporary files
                self._folder = tempfile.TemporaryDirectory(prefix="headrace-jdbc-", ignore_cleanup_errors=True)
                _compile(java, self._folder.name)
            return self._folder.name


def _compile(java: str, folder: str) -> None:
    # Not where this module is: Spark's own workers import it from an archive.
    jars = Path(str(distribution("pyspark").locate_file("pyspark/jars")))
    compiler = [str(path) for name in ("janino-*.jar", "commons-compiler-*.jar") for path in jars.glob(name)]
    command = [java, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", ":".join(compiler), _COMPILER]
    command += ["-d", folder, *map(str, _SOURCES)]
    try:
        compiling = subprocess.run(command, check=False, capture_output=True, env={}, timeout=_COMPILE_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"its program was not compiled within {_COMPILE_SECONDS} s") from error
    if not _is_compiled(folder):
        log.error("The program for JDBC could not be compiled: %s", compiling.stderr.decode(errors="replace")[:2000])
        raise OSError("its program could not be compiled; the server's log has the details")


def _is_compiled(folder: str) -> bool:
    return all(Path(folder, f"{source.stem}.class").exists() for source in _SOURCES)
