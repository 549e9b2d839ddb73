"""Downloads Kafka and Spark's Kafka connector: pinned Maven artifacts with committed checksums.

Ivy, which PySpark includes, resolves them, so Maven is not needed.
"""

import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

from backend.runtime.errors import CannotStartError
from backend.runtime.layout import Layout
from backend.runtime.servers import package_folder
from backend.runtime.versions import versions
from backend.settings import ROOT

CHECKSUMS = ROOT / "docker/jars.sha256"

_IVY = """<ivy-module version="2.0">
  <info organisation="headrace" module="jars"/>
  <configurations><conf name="kafka"/><conf name="spark"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_{SCALA_VERSION}" rev="{KAFKA_VERSION}" conf="kafka->default"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{KAFKA_VERSION}" conf="kafka->master"
                transitive="false"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="{LOG4J_VERSION}"
                conf="kafka->master" transitive="false"/>
    <dependency org="org.apache.spark" name="spark-sql-kafka-0-10_{SCALA_VERSION}" rev="{SPARK_VERSION}"
                conf="spark->master" transitive="false"/>
    <dependency org="org.apache.spark" name="spark-token-provider-kafka-0-10_{SCALA_VERSION}"
                rev="{SPARK_TOKEN_PROVIDER_VERSION}" conf="spark->master" transitive="false"/>
    <dependency org="org.apache.kafka" name="kafka-clients" rev="{SPARK_KAFKA_CLIENTS_VERSION}"
                conf="spark->master" transitive="false"/>
    <dependency org="org.apache.commons" name="commons-pool2" rev="{COMMONS_POOL2_VERSION}"
                conf="spark->master" transitive="false"/>
  </dependencies>
</ivy-module>
"""


def ensure_jars(layout: Layout, java_home: Path) -> None:
    """Downloads the jars once and verifies their checksums. Raises CannotStartError if any differs."""
    stamp = layout.jars / "checked"
    committed = CHECKSUMS.read_text()
    if stamp.exists() and stamp.read_text() == committed:
        return
    print("Downloading Kafka and Spark's Kafka connector.", flush=True)
    download(layout, java_home)
    expected = {name: digest for digest, name in (line.split("  ", 1) for line in committed.splitlines())}
    actual = checksums(layout)
    if actual != expected:
        differing = sorted(name for name in expected.keys() | actual.keys() if expected.get(name) != actual.get(name))
        raise CannotStartError(
            f"The checksums of these jars differ: {', '.join(differing)}. Delete {layout.jars} and try again."
        )
    stamp.write_text(committed)


def download(layout: Layout, java_home: Path) -> None:
    """Downloads the jars without verifying them. Raises CannotStartError."""
    retrieve(
        _IVY.format(**versions()), layout.jars, java_home, types=["jar", "bundle"], configurations=["kafka", "spark"]
    )


def retrieve(
    description: str, folder: Path, java_home: Path, *, types: Sequence[str], configurations: Sequence[str]
) -> None:
    """Resolves an Ivy module description into ``folder/{configuration}``. Raises CannotStartError."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "ivy.xml"
    file.write_text(description)
    ivy = next((package_folder("pyspark") / "jars").glob("ivy-*.jar"))
    command = [java_home / "bin/java", "-jar", ivy, "-ivy", file, "-cache", folder / "cache"]
    selection = ["-types", *types, "-confs", *configurations]
    pattern = f"{folder}/[conf]/[artifact]-[revision].[ext]"
    result = subprocess.run(
        [*map(str, command), *selection, "-retrieve", pattern, "-overwriteMode", "always"],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0 or not all((folder / name).exists() for name in configurations):
        raise CannotStartError(
            f"The jars could not be downloaded; check the network.\n{(result.stdout + result.stderr)[-2000:]}"
        )


def checksums(layout: Layout) -> dict[str, str]:
    """The SHA-256 of every downloaded jar, by ``folder/file``."""
    return {
        f"{path.parent.name}/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in ("kafka", "spark")
        for path in sorted((layout.jars / folder).glob("*.jar"))
    }


if __name__ == "__main__":
    from backend.runtime.java import java_home
    from backend.runtime.layout import var_folder

    installed = Layout(var_folder())
    ensure_jars(installed, java_home(installed))
