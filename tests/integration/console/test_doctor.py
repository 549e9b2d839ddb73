"""``manage.py doctor`` on real servers, and what it says about one that is not well."""

import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from django.conf import settings

from backend.domain import routing
from backend.kafka.client.topics import own_topic, topics_reconcile
from backend.runtime import doctor
from tests.infra import KAFKA, Server
from tests.ports import free_ports
from tests.waiting import LIMIT_SECONDS, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_server", "kafka", "secret_keys")]


def problems() -> dict[str, str]:
    return {finding.part: finding.problem for finding in doctor.examine() if finding.problem}


@pytest.fixture
def topics(kafka: Server) -> None:
    admin = AdminClient({"bootstrap.servers": KAFKA})
    topics_reconcile(admin, [own_topic(name, settings.CONSOLE) for name in routing.TOPICS])
    wait_until(lambda: set(routing.TOPICS) <= admin.list_topics(timeout=LIMIT_SECONDS).topics.keys())


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Keycloak and no proxy run for these tests, and nothing ends TLS."""
    changed = {"oidc_issuer": "", "public_url": "https://headrace.example.com", "django_secret_key": "x" * 50}
    console = type(settings.CONSOLE).model_validate(settings.CONSOLE.model_dump() | changed)
    monkeypatch.setattr(settings, "CONSOLE", console)


@pytest.mark.usefixtures("topics", "elsewhere")
def test_only_what_does_not_run_is_named_with_what_to_do() -> None:
    named = problems()
    assert named.keys() == {"manager", "http input"}, named
    seen = {finding.part: finding.detail for finding in doctor.examine()}
    assert seen["postgresql"].startswith("version 18")
    assert "brokers: 1" in seen["kafka"]


@pytest.mark.usefixtures("topics", "elsewhere")
def test_a_server_that_is_down_and_a_key_that_others_may_read(
    redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = Path(settings.CONSOLE.secret_keys_file)
    keys.chmod(0o644)
    redis_server.stop()
    [nobody] = free_ports(1)
    console = settings.CONSOLE.model_copy(update={"spark_master": f"spark://127.0.0.1:{nobody}"})
    monkeypatch.setattr(settings, "CONSOLE", console)
    try:
        named = problems()
    finally:
        redis_server.start()
        keys.chmod(0o600)
    assert "Check HEADRACE_REDIS_URL" in named["redis"]
    assert "chmod 600` on each" in named["files"]
    assert "start it, or change HEADRACE_SPARK_MASTER" in named["spark"]


def test_a_clock_that_is_wrong() -> None:
    now = time.time()
    doctor._check_clock("Redis", now, now)
    with pytest.raises(doctor._Wrong, match=r"of Redis differ by 6\d\.\d s"):
        doctor._check_clock("Redis", now - 60, now)
