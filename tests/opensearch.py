"""OpenSearch with its security plugin for the tests: TLS, and users with a password."""

import shutil
import signal
import subprocess
import zipfile
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from urllib.parse import quote

import requests

from backend.runtime import servers
from backend.runtime.errors import CannotStartError
from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from backend.settings import ROOT
from tests.certificates import Authority
from tests.distributions import distribution_files
from tests.infra import VAR, Server
from tests.ports import free_ports
from tests.waiting import LIMIT_SECONDS

PORT, _NODE_PORT = free_ports(2)
URL = f"https://127.0.0.1:{PORT}"
USER, PASSWORD = "headrace", "planted-password:of search"
READER, STRANGER = "reader", "stranger"
"""Users with the same password: one who may write to no index, and one who may do nothing."""
FOLDER = Path(mkdtemp(prefix="opensearch-", dir=VAR))
AUTHORITY = Authority(FOLDER)

_NEWEST_JAVA = 23
"""Later ones have no security manager, which this version of OpenSearch cannot do without."""
_IVY = """<ivy-module version="2.0">
  <info organisation="headrace" module="opensearch"/>
  <configurations><conf name="opensearch"/></configurations>
  <dependencies>
    <dependency org="org.opensearch" name="opensearch" rev="{OPENSEARCH_VERSION}" conf="opensearch->default"/>
    <dependency org="org.opensearch" name="opensearch-plugin-classloader" rev="{OPENSEARCH_CLASSLOADER_VERSION}"
                conf="opensearch->master" transitive="false"/>
    <dependency org="org.apache.logging.log4j" name="log4j-core" rev="{OPENSEARCH_LOG4J_VERSION}"
                conf="opensearch->master" transitive="false"/>
    <dependency org="org.opensearch.plugin" name="opensearch-security" rev="{OPENSEARCH_VERSION}.0"
                conf="opensearch->master" transitive="false">
      <artifact name="opensearch-security" type="zip" ext="zip"/>
    </dependency>
  </dependencies>
</ivy-module>
"""
_HASH = "$2y$12$yfgxfWNePb13lUKBIpBEkOVYMwpXA2O14/RZ2UygsRv97nTouoq7."  # of PASSWORD, by bcrypt
_SETTINGS = """\
cluster.name: headrace-tests
discovery.type: single-node
network.host: 127.0.0.1
http.port: {port}
transport.port: {node_port}
http.max_content_length: 3mb
cluster.routing.allocation.disk.threshold_enabled: false
plugins.security.ssl.transport.pemcert_filepath: node.pem
plugins.security.ssl.transport.pemkey_filepath: node.key
plugins.security.ssl.transport.pemtrustedcas_filepath: authority.pem
plugins.security.ssl.transport.enforce_hostname_verification: false
plugins.security.ssl.http.enabled: true
plugins.security.ssl.http.pemcert_filepath: node.pem
plugins.security.ssl.http.pemkey_filepath: node.key
plugins.security.ssl.http.pemtrustedcas_filepath: authority.pem
plugins.security.authcz.admin_dn: ["CN=admin"]
plugins.security.nodes_dn: ["CN=node"]
plugins.security.allow_default_init_securityindex: true
plugins.security.audit.type: noop
"""
_LOGGING = """\
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""
_USERS = f"""\
_meta: {{type: internalusers, config_version: 2}}
{USER}: {{hash: "{_HASH}", backend_roles: [admin]}}
{READER}: {{hash: "{_HASH}"}}
{STRANGER}: {{hash: "{_HASH}"}}
"""
_ROLES = """\
_meta: {type: roles, config_version: 2}
reading:
  cluster_permissions: [cluster_composite_ops, "cluster:monitor/main"]
  index_permissions: [{index_patterns: ["*"], allowed_actions: [read, "indices:admin/get"]}]
"""
_ROLES_OF_USERS = f"""\
_meta: {{type: rolesmapping, config_version: 2}}
all_access: {{backend_roles: [admin]}}
reading: {{users: [{READER}]}}
"""
_JVM = ["-Xms256m", "-Xmx256m", "-Djava.security.manager=allow", "-Dlog4j2.disable.jmx=true"]


def opensearch_server() -> Server:
    """Not yet started."""
    layout = Layout(ROOT / "var")
    layout.create()
    java, home, user = _java(layout), FOLDER / "home", servers.postgresql_user()  # neither of them runs as root
    if not home.exists():
        _install(home, distribution_files("opensearch", _IVY, layout, java))
    if user is not None:
        for path in (home, *home.rglob("*")):
            shutil.chown(path, user)
    options = [f"-Dopensearch.path.home={home}", f"-Dopensearch.path.conf={home / 'config'}"]
    command = [str(java / "bin/java"), *_JVM, *options, "-cp", f"{home / 'lib'}/*"]
    # It takes longer to stop than its data is worth.
    return Server(
        "opensearch",
        [*command, "org.opensearch.bootstrap.OpenSearch"],
        _ready,
        user,
        signal.SIGKILL,
    )


def api(method: str, path: str, body: Any = None) -> requests.Response:
    """A request without Headrace."""
    return requests.request(
        method,
        f"{URL}/{path}",
        json=body,
        auth=(USER, PASSWORD),
        verify=str(AUTHORITY.certificate),
        timeout=LIMIT_SECONDS,
    )


def sources(index: str) -> list[bytes]:
    """The documents of an index, each as it was written."""
    assert api("POST", f"{index}/_refresh").ok
    hits = api("GET", f"{index}/_search?size=1000").json()["hits"]["hits"]
    return [_source(index, hit["_id"], hit.get("_routing", "")) for hit in hits]


def _source(index: str, document_id: str, routing: str) -> bytes:
    path = f"{index}/_source/{quote(document_id, safe='')}"
    return api("GET", path + (f"?routing={routing}" if routing else "")).content


def _java(layout: Layout) -> Path:
    candidates = [java_home(layout), *sorted(Path("/usr/lib/jvm").glob("java-*-openjdk-*"))]
    for home in candidates:
        if _version(home) <= _NEWEST_JAVA:
            return home
    raise CannotStartError(f"OpenSearch needs Java 17 to {_NEWEST_JAVA}: install openjdk-17-jre-headless.")


def _version(home: Path) -> int:
    command = [home / "bin/java", "-XshowSettings:properties", "-version"]
    settings = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    [version] = [line.partition("=")[2] for line in settings.splitlines() if "java.specification.version" in line]
    return int(version)


def _install(home: Path, files: list[Path]) -> None:
    configuration, plugin = home / "config", home / "plugins/opensearch-security"
    for folder in (configuration, plugin, home / "modules", home / "lib", home / "logs"):
        folder.mkdir(parents=True)
    for file in files:
        if file.suffix == ".jar":
            shutil.copy(file, home / "lib")
        else:
            with zipfile.ZipFile(file) as archive:
                archive.extractall(plugin)
    shutil.move(plugin / "config", configuration / "opensearch-security")
    for name, text in (("internal_users", _USERS), ("roles", _ROLES), ("roles_mapping", _ROLES_OF_USERS)):
        (configuration / f"opensearch-security/{name}.yml").write_text(text)
    (configuration / "opensearch.yml").write_text(_SETTINGS.format(port=PORT, node_port=_NODE_PORT))
    (configuration / "log4j2.properties").write_text(_LOGGING)
    for file in (*AUTHORITY.issue("node"), AUTHORITY.certificate):
        shutil.copy(file, configuration)
    FOLDER.chmod(0o755)


def _ready() -> bool:
    try:
        return api("GET", "_cluster/health").ok
    except requests.RequestException:
        return False
