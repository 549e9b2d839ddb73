"""Checks everything that an installation depends on, and says what to do: ``manage.py doctor``."""

import shutil
import stat
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor
from redis.exceptions import RedisError

from backend.apps.connectors.secrets import cipher
from backend.apps.connectors.vault import VaultUnavailableError, vault
from backend.collections.location import Location
from backend.domain.stages import all_topics
from backend.exports.staging_store import staging_store
from backend.manager_api.credentials import NoCredentialsError
from backend.manager_api.jobs import manager_answers
from backend.network.redis_client import redis_client
from backend.runtime.health import is_listening
from backend.runtime.java import java_version
from backend.settings import platform_settings

_SECONDS = 5.0
_SKEW_SECONDS = 1.0
_OLDEST_POSTGRESQL = 140_000
_OLDEST_REDIS = (6, 2)
_OLDEST_JAVA = 17
_FREE_BYTES = 2 * 1024**3
_TOPIC_RIGHTS = {AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE}


@dataclass(frozen=True)
class Finding:
    """``problem`` says what is wrong and what to do; it is empty when all is well. ``detail`` is what was seen."""

    part: str
    detail: str = ""
    problem: str = ""


class _Wrong(Exception):
    """A check's first problem, after which it cannot go on."""


Check = Callable[[], Iterator[str]]
"""Yields what is well; raises _Wrong."""


def examine() -> list[Finding]:
    """One finding for each part, in the order in which to repair them."""
    checks: dict[str, Check] = {
        "settings": _settings,
        "files": _files,
        "postgresql": _postgresql,
        "redis": _redis,
        "kafka": _kafka,
        "vault": _vault,
        "sign-in": _sign_in,
        "manager": _manager,
        "http input": _http_input,
        "stores": _stores,
        "spark": _spark,
    }
    with ThreadPoolExecutor(len(checks)) as pool:
        return list(pool.map(_finding, checks, checks.values()))


def _finding(part: str, check: Check) -> Finding:
    seen: list[str] = []
    try:
        seen.extend(check())
    except _Wrong as error:
        return Finding(part, problem=str(error))
    finally:
        connection.close()  # of this thread, which ends
    return Finding(part, ", ".join(seen))


def _settings() -> Iterator[str]:
    console, platform = settings.CONSOLE, platform_settings()
    if not platform.service_token.get_secret_value():
        raise _Wrong("There is no HEADRACE_SERVICE_TOKEN: set it to the same long random text for every process.")
    if not console.embedded:
        if not console.django_secret_key.get_secret_value():
            raise _Wrong("There is no HEADRACE_DJANGO_SECRET_KEY: set it to a long random text.")
        if urlsplit(console.public_url).scheme != "https":
            raise _Wrong(
                f"HEADRACE_PUBLIC_URL is {console.public_url}: browsers send the session's cookie by https only. Put a "
                "proxy that ends TLS in front of the console, and name its address."
            )
    yield console.public_url


def _files() -> Iterator[str]:
    keys = Path(settings.CONSOLE.secret_keys_file)
    try:
        cipher()
    except (OSError, ValueError, KeyError) as error:
        raise _Wrong(
            f"The keys that encrypt secrets cannot be read from {keys} ({type(error).__name__}). Restore the file, or "
            "create it with `python -m backend.runtime.secret_files FOLDER` in a new installation."
        ) from None
    readable = [path for path in (keys, *_secret_files()) if path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)]
    if readable:
        raise _Wrong(f"Other users may read {', '.join(map(str, readable))}: run `chmod 600` on each.")
    var = Path(settings.CONSOLE.var)
    try:
        var.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=var):
            pass
    except OSError as error:
        raise _Wrong(f"HEADRACE_VAR, {var}, cannot be written to: {error.strerror}. Give it to this user.") from None
    free = shutil.disk_usage(var).free
    if free < _FREE_BYTES:
        raise _Wrong(
            f"Only {free // 1024**2} MiB are free in {var}. Make room: Spark's logs and checkpoints are there."
        )
    yield f"{free // 1024**3} GiB free in {var}"


def _secret_files() -> list[Path]:
    folder = platform_settings().secrets_dir
    return list(Path(folder).glob("headrace_*")) if folder else []


def _postgresql() -> Iterator[str]:
    try:
        with connection.cursor() as cursor:
            before = time.time()
            cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8, pg_is_in_recovery()")
            [(now, standby)] = cursor.fetchall()
            _check_clock("PostgreSQL", now, before)
        if standby:
            raise _Wrong("PostgreSQL is a standby: add target_session_attrs=read-write to HEADRACE_DATABASE_URL.")
        version: Any = connection.pg_version  # type: ignore[attr-defined]
        if version < _OLDEST_POSTGRESQL:
            raise _Wrong(f"PostgreSQL is version {version // 10_000}: Headrace needs 14 or later.")
        yield f"version {version // 10_000}.{version % 10_000}"
        executor = MigrationExecutor(connection)
        pending = executor.migration_plan(executor.loader.graph.leaf_nodes())
        if pending:
            raise _Wrong(f"{len(pending)} migrations are missing: run `manage.py prepare`.")
    except (DatabaseError, InterfaceError) as error:
        raise _Wrong(
            f"PostgreSQL does not answer ({_line(error)}). Check HEADRACE_DATABASE_URL and HEADRACE_DATABASE_PASSWORD."
        ) from None


def _redis() -> Iterator[str]:
    try:
        client = redis_client()
        before = time.time()
        seconds, microseconds = client.time()  # type: ignore[misc]
        _check_clock("Redis", seconds + microseconds / 1e6, before)
        facts: Any = client.info()
        version = str(facts["redis_version"])
        if tuple(map(int, version.split(".")[:2])) < _OLDEST_REDIS:
            raise _Wrong(f"Redis is version {version}: Headrace needs 6.2 or later.")
        if facts.get("maxmemory") and facts.get("maxmemory_policy") != "noeviction":
            raise _Wrong("Redis evicts keys when its memory is full: set `maxmemory-policy noeviction`.")
        yield f"version {facts.get('valkey_version', version)}"
    except (RedisError, ValueError) as error:
        raise _Wrong(
            f"Redis does not answer ({_line(error)}). Check HEADRACE_REDIS_URL and HEADRACE_REDIS_PASSWORD."
        ) from None


def _kafka() -> Iterator[str]:
    try:
        admin = AdminClient({**platform_settings().kafka.client(), "log_level": 0})
        metadata = admin.list_topics(timeout=_SECONDS)
        missing = sorted(set(all_topics()) - metadata.topics.keys())
        if missing:
            raise _Wrong(f"Topics are missing: {', '.join(missing)}. Run `manage.py prepare`.")
        described = admin.describe_topics(
            TopicCollection(all_topics()), include_authorized_operations=True, request_timeout=_SECONDS
        )
        for name, future in described.items():
            topic = future.result()
            allowed = set(topic.authorized_operations or _TOPIC_RIGHTS)
            absent = set() if AclOperation.ALL in allowed else _TOPIC_RIGHTS - allowed
            if absent:
                rights = ", ".join(sorted(operation.name for operation in absent))
                raise _Wrong(f"The user of Kafka lacks {rights} on {name}: add an ACL.")
            if not all(part.leader for part in topic.partitions):
                raise _Wrong(f"A partition of {name} has no leader: start the brokers that are missing.")
    except KafkaException as error:
        raise _Wrong(
            f"Kafka does not answer ({error.args[0].str()}). Check HEADRACE_KAFKA_BOOTSTRAP_SERVERS, and TLS and login."
        ) from None
    yield f"brokers: {len(metadata.brokers)}"


def _vault() -> Iterator[str]:
    if not settings.CONSOLE.vault_url:
        yield "PostgreSQL keeps the secrets"
        return
    store = vault()
    assert store is not None
    try:
        store.write("doctor", b"")
        store.delete("doctor")
    except VaultUnavailableError as error:
        raise _Wrong(f"{error} Check the settings HEADRACE_VAULT_….") from None
    yield settings.CONSOLE.vault_url


def _sign_in() -> Iterator[str]:
    issuer = settings.CONSOLE.oidc_issuer
    if not issuer:
        yield "local accounts"
        return
    _get(f"{issuer}/.well-known/openid-configuration", "the realm. Check HEADRACE_OIDC_ISSUER")
    yield issuer


def _manager() -> Iterator[str]:
    address = platform_settings().manager_address
    try:
        answers = manager_answers(platform_settings())
    except (NoCredentialsError, OSError) as error:
        raise _Wrong(f"The manager's certificates cannot be used: {error}") from None
    if not answers:
        raise _Wrong(f"The manager does not answer at {address}: start it, and check HEADRACE_MANAGER_ADDRESS.")
    yield address


def _http_input() -> Iterator[str]:
    _get(f"{settings.CONSOLE.ingest_url}/health/ready", "the HTTP input. Start it, and check HEADRACE_INGEST_URL")
    yield str(settings.CONSOLE.ingest_url)


def _stores() -> Iterator[str]:
    with _writing("HEADRACE_STAGING_URL", platform_settings().staging_url):
        staging = staging_store(platform_settings().staging_url)
        staging.write(".doctor", b"")
        staging.delete([".doctor"])
    with _writing("HEADRACE_COLLECTIONS_URL", platform_settings().collections_url):
        place = Location.of(platform_settings().collections_url)
        if place.folder is not None:
            place.folder.mkdir(parents=True, exist_ok=True)
        files = place.files()
        with files.open_output_stream(".doctor") as stream:
            stream.write(b"")
        files.delete_file(".doctor")
    yield "files and collections can be stored"


@contextmanager
def _writing(variable: str, url: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, ValueError) as error:
        # What stands before the host may be a login.
        shown = f"…@{url.rpartition('@')[2]}" if "@" in url else url
        raise _Wrong(f"{variable}, {shown}, cannot be written to: {_line(error)}") from None


def _spark() -> Iterator[str]:
    java = java_version(settings.CONSOLE.java_home)
    if java < _OLDEST_JAVA:
        raise _Wrong(f"Spark needs Java {_OLDEST_JAVA} or later: install it, or set HEADRACE_JAVA_HOME.")
    yield f"Java {java}"
    master = settings.CONSOLE.spark_master
    if master.startswith("spark://"):
        hosts = master.removeprefix("spark://").split(",")
        if not any(is_listening(host) for host in hosts):
            raise _Wrong(f"No master of Spark listens at {master}: start it, or change HEADRACE_SPARK_MASTER.")
    yield master


def _check_clock(server: str, its_time: float, before: float) -> None:
    after = time.time()
    skew = max(before - its_time, its_time - after, 0.0)
    if skew > _SKEW_SECONDS:
        raise _Wrong(f"The clocks of this machine and of {server} differ by {skew:.1f} s: synchronize them by NTP.")


def _get(url: str, what: str) -> None:
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS):
            pass
    except urllib.error.HTTPError as error:
        raise _Wrong(f"{url} answers {error.code}, which should be {what}.") from None
    except OSError as error:
        raise _Wrong(f"{url} does not answer ({_line(error)}), which should be {what}.") from None


def _line(error: BaseException) -> str:
    """The first line of its text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
