"""HTTP clients of other languages than Python: each posts a text and returns the status that it read."""

import io
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pycurl
import pyspark
from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]

from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from backend.settings import ROOT
from tests.go_programs import built

PostBy = Callable[[str, str, int], int]
"""Posts to a URL, with an API key, so many bytes."""


def by_curl(url: str, key: str, size: int) -> int:
    """By libcurl, which the program ``curl`` and clients of many languages use."""
    handle = pycurl.Curl()
    try:
        handle.setopt(pycurl.URL, url)
        handle.setopt(pycurl.HTTPHEADER, [f"Authorization: Bearer {key}", "Content-Type: text/plain"])
        handle.setopt(pycurl.POSTFIELDS, "x" * size)
        handle.setopt(pycurl.WRITEDATA, io.BytesIO())
        handle.perform()
        return int(handle.getinfo(pycurl.RESPONSE_CODE))
    finally:
        handle.close()


def by_go(url: str, key: str, size: int) -> int:
    return int(subprocess.run([built("go_client"), url, key, str(size)], capture_output=True, check=True).stdout)


def by_java(url: str, key: str, size: int) -> int:
    """By the client that every Java has."""
    with _jvm() as jvm:
        connection = jvm.java.net.URL(url).openConnection()
        connection.setRequestMethod("POST")
        connection.setRequestProperty("Authorization", f"Bearer {key}")
        connection.setRequestProperty("Content-Type", "text/plain")
        connection.setDoOutput(True)
        body = connection.getOutputStream()
        body.write(bytes(b"x" * size))
        body.close()
        return int(connection.getResponseCode())


@contextmanager
def _jvm() -> Iterator[Any]:
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    gateway = JavaGateway.launch_gateway(
        jarpath=str(jar), java_path=str(java_home(Layout(ROOT / "var")) / "bin/java"), die_on_exit=True
    )
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
