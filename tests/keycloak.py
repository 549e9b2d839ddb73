"""A real Keycloak with the tests' realm, on a port that is chosen before Django reads its settings."""

import os
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from backend.runtime.java import java_home
from backend.runtime.layout import Layout
from backend.settings import ROOT
from tests.distributions import distribution
from tests.exclusive import exclusive
from tests.infra import KEYCLOAK_PORT, KEYCLOAK_REALM, VAR
from tests.waiting import LIMIT_SECONDS, answers, start_of, wait_for_processes

_IVY = """<ivy-module version="2.0">
  <info organisation="headrace" module="keycloak"/>
  <configurations><conf name="keycloak"/></configurations>
  <dependencies>
    <dependency org="org.keycloak" name="keycloak-quarkus-dist" rev="{KEYCLOAK_VERSION}" conf="keycloak->master"
                transitive="false"><artifact name="keycloak-quarkus-dist" type="zip" ext="zip"/></dependency>
  </dependencies>
</ivy-module>
"""
_JVM = {
    "JAVA_OPTS_KC_HEAP": "-Xms64m -Xmx320m",
    "JAVA_OPTS_APPEND": "-XX:-UseG1GC -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "KC_BOOTSTRAP_ADMIN_USERNAME": "admin",
    "KC_BOOTSTRAP_ADMIN_PASSWORD": "admin",
}


class Keycloak:
    """The realm, with the administrative actions that tests need."""

    address = f"http://127.0.0.1:{KEYCLOAK_PORT}"
    issuer = KEYCLOAK_REALM

    def access_token(self, username: str, client: str = "headrace") -> str:
        secret = {"client_secret": "client-secret"} if client == "headrace" else {}
        answer = requests.post(
            f"{self.issuer}/protocol/openid-connect/token",
            {
                "grant_type": "password",
                "client_id": client,
                "username": username,
                "password": f"{username}-password",
                "scope": "openid",
                **secret,
            },
            timeout=LIMIT_SECONDS,
        )
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def admin(self, method: str, path: str, body: object = None) -> requests.Response:
        """Sends a request to the admin REST API of the realm."""
        token = requests.post(
            f"{self.address}/realms/master/protocol/openid-connect/token",
            {"grant_type": "password", "client_id": "admin-cli", "username": "admin", "password": "admin"},
            timeout=LIMIT_SECONDS,
        ).json()["access_token"]
        answer = requests.request(
            method,
            f"{self.address}/admin/realms/headrace{path}",
            json=body,
            headers={"Authorization": f"Bearer {token}"},
            timeout=LIMIT_SECONDS,
        )
        assert answer.ok, answer.text
        return answer

    def user_id(self, username: str) -> str:
        return str(self.admin("GET", f"/users?username={username}&exact=true").json()[0]["id"])


@pytest.fixture(scope="session")
def keycloak() -> Iterator[Keycloak]:
    layout = Layout(ROOT / "var")
    with exclusive("downloads"):
        layout.create()
        home = java_home(layout)
    folder = VAR / "keycloak"
    with zipfile.ZipFile(distribution("keycloak", _IVY, layout, home)) as archive:
        archive.extractall(folder)
    installed = next(folder.glob("keycloak-*"))
    (installed / "data/import").mkdir(parents=True)
    shutil.copy(Path(__file__).parent / "keycloak_realm.json", installed / "data/import/headrace-realm.json")
    command = ["/bin/sh", installed / "bin/kc.sh", "start-dev", "--import-realm", "--cache=local", "--log-level=warn"]
    with (VAR / "keycloak.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--http-host=127.0.0.1", f"--http-port={KEYCLOAK_PORT}"],
            stdout=log,
            stderr=log,
            env=os.environ | _JVM | {"JAVA_HOME": str(home)},
            start_new_session=True,
        )
    wait_for_processes(
        [
            start_of(
                "keycloak",
                lambda: answers(f"{KEYCLOAK_REALM}/.well-known/openid-configuration"),
                process,
                VAR / "keycloak.log",
            )
        ]
    )
    yield Keycloak()
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(LIMIT_SECONDS)
