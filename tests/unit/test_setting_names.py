"""Settings whose name nobody reads are refused, and all others are documented."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from backend.runtime.reference import settings_page
from backend.settings import (
    ROOT,
    SECTIONS,
    ConsoleSettings,
    KafkaSettings,
    Settings,
    UnknownSettingError,
    check_names,
    environment_of,
    variables,
)


def test_every_setting_is_documented_once() -> None:
    page = settings_page()
    for section in SECTIONS.values():
        for name in variables(section):
            [row] = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
            assert row.split(" | ")[-1].strip("| "), name


def test_a_misspelt_setting_is_refused_with_the_name_that_was_meant() -> None:
    with pytest.raises(UnknownSettingError, match=r"HEADRACE_REDIS_ULR is no setting .* mean HEADRACE_REDIS_URL"):
        check_names(["PATH", "HEADRACE_REDIS_ULR"])
    with pytest.raises(UnknownSettingError, match="lists all of them"):
        check_names(["HEADRACE_XYZ_123"])


def test_what_kubernetes_sets_for_each_service_is_accepted() -> None:
    services = ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_80_TCP", "PORT_80_TCP_ADDR"]
    names = [f"HEADRACE_{service}{name}" for service in ("", "CONSOLE_") for name in services]
    check_names([*names, "HEADRACE_KAFKA_TLS", "HEADRACE_VAR"])


def test_secrets_are_read_from_files_unless_a_variable_sets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "headrace_service_token").write_text("from a file")
    (tmp_path / "headrace_database_password").write_text("password")
    monkeypatch.setenv("HEADRACE_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("HEADRACE_SERVICE_TOKEN", "")
    assert Settings().service_token.get_secret_value() == "from a file"
    assert ConsoleSettings().database_password.get_secret_value() == "password"
    monkeypatch.setenv("HEADRACE_SERVICE_TOKEN", "from a variable")
    assert Settings().service_token.get_secret_value() == "from a variable"
    monkeypatch.setenv("HEADRACE_SECRETS_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="HEADRACE_SECRETS_DIR: there is no folder"):
        Settings()


def test_the_settings_that_executors_get_are_the_drivers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "headrace_service_token").write_text("from a file")
    kafka = KafkaSettings(tls=True, ca="/ca.pem", sasl_mechanism="PLAIN", username="a", password=SecretStr("b"))
    monkeypatch.setenv("HEADRACE_SECRETS_DIR", str(tmp_path))
    monkeypatch.delenv("HEADRACE_SERVICE_TOKEN", raising=False)
    driver = Settings(kafka=kafka, outbound_allow="10.0.0.0/8", metrics_port=9100)
    monkeypatch.setenv("HEADRACE_SECRETS_DIR", "/nowhere")
    monkeypatch.setenv("HEADRACE_FILES_ROOT", "/of/the/executor")
    for name, value in environment_of(driver).items():
        monkeypatch.setenv(name, value)
    executor = Settings()
    assert executor.service_token.get_secret_value() == "from a file"
    assert executor == driver.model_copy(update={"secrets_dir": ""})


@pytest.mark.parametrize(
    "command", [["manage.py", "check"], ["-c", "from backend.settings import platform_settings as read; read()"]]
)
def test_no_process_starts_with_a_misspelt_setting(command: list[str]) -> None:
    environment = os.environ | {"HEADRACE_KAFKA_TSL": "true"}
    process = subprocess.run(
        [sys.executable, *command], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert process.returncode != 0
    last = process.stderr.strip().splitlines()[-1]
    assert last.endswith("HEADRACE_KAFKA_TSL is no setting of Headrace; did you mean HEADRACE_KAFKA_TLS?")
