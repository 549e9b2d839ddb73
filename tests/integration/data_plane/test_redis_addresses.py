"""Redis with a password, with TLS and behind Sentinels: each client, and Celery, reaches it by one address."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import pytest
import redis
from kombu import Connection
from redis.exceptions import RedisError

from backend.network.redis_client import RedisAddress
from backend.runtime import servers
from tests.certificates import Authority
from tests.infra import VAR
from tests.ports import free_ports
from tests.tls_proxy import tls_proxy
from tests.waiting import LIMIT_SECONDS, wait_until

PASSWORD = "pass/word?"
NAME = "headrace"
WAITS = {"socket_timeout": 2.0, "socket_connect_timeout": 2.0}


@contextmanager
def started(*arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    folder = Path(mkdtemp(dir=VAR))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([str(servers.redis_program()), *arguments], stdout=log, stderr=log, cwd=folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def server(port: int, *more: str) -> list[str]:
    login = ["--requirepass", PASSWORD, "--masterauth", PASSWORD]
    return ["--bind", "127.0.0.1", "--port", str(port), "--save", "", *login, *more]


def answers(port: int) -> bool:
    try:
        return bool(redis.Redis(port=port, password=PASSWORD).ping())
    except RedisError:
        return False


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    [number] = free_ports(1)
    with started(*server(number)):
        wait_until(lambda: answers(number))
        yield number


def roundtrip(address: RedisAddress, text: str) -> None:
    """Through the clients of threads and of event loops, and through Celery's broker."""
    client = address.client(**WAITS)
    client.set("key", text)

    async def read() -> bytes:
        async with address.async_client(**WAITS) as other:
            return bytes(await other.get("key") or b"")

    assert asyncio.run(read()) == text.encode()
    client.close()
    broker = Connection(address.celery_url, ssl=address.tls, transport_options={**WAITS, **address.celery_options})
    with broker, broker.SimpleQueue(f"queue-{text}") as queue:
        queue.put({"text": text})
        message = queue.get(timeout=LIMIT_SECONDS)
        message.ack()
        assert message.payload == {"text": text}


def test_a_password_beside_the_address(port: int) -> None:
    roundtrip(RedisAddress.parse(f"redis://127.0.0.1:{port}/1", PASSWORD), "password")
    with pytest.raises(RedisError):
        RedisAddress.parse(f"redis://127.0.0.1:{port}/1").client(**WAITS).ping()


def test_tls_verifies_the_server(port: int, tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    with tls_proxy(port, *authority.issue("redis")) as secured:
        address = f"rediss://127.0.0.1:{secured}/0"
        roundtrip(RedisAddress.parse(f"{address}?ca={authority.certificate}", PASSWORD), "tls")
        for refused in (address, f"{address}?ca={other.certificate}"):
            with pytest.raises(RedisError, match="CERTIFICATE_VERIFY_FAILED"):
                RedisAddress.parse(refused, PASSWORD).client(**WAITS).ping()


def test_sentinels_name_the_server_also_after_a_failover(tmp_path: Path) -> None:
    primary, replica, sentinel = free_ports(3)
    config = tmp_path / "sentinel.conf"
    # On a busy machine a server that lives may not answer for a second, and is then none that is named.
    config.write_text(
        f"port {sentinel}\nbind 127.0.0.1\nrequirepass {PASSWORD}\n"
        f"sentinel monitor {NAME} 127.0.0.1 {primary} 1\nsentinel auth-pass {NAME} {PASSWORD}\n"
        f"sentinel down-after-milliseconds {NAME} 5000\nsentinel failover-timeout {NAME} 5000\n"
    )
    follow = ("--replicaof", f"127.0.0.1 {primary}", "--repl-diskless-sync-delay", "0")
    with (
        started(*server(primary, "--repl-diskless-sync-delay", "0")) as first,
        started(*server(replica, *follow)),
        started(str(config), "--sentinel"),
    ):
        wait_until(lambda: answers(primary) and answers(replica) and answers(sentinel))
        address = RedisAddress.parse(f"redis://127.0.0.1:{sentinel}/0?sentinel={NAME}", PASSWORD)
        watcher = redis.Redis(port=sentinel, password=PASSWORD, decode_responses=True)
        wait_until(lambda: len(watcher.sentinel_slaves(NAME)) == 1)
        roundtrip(address, "before")
        wait_until(lambda: redis.Redis(port=replica, password=PASSWORD).get("key") == b"before")
        first.kill()

        def writes() -> bool:
            try:
                return bool(address.client(**WAITS).set("key", "after"))
            except RedisError:
                return False

        wait_until(writes)
        assert redis.Redis(port=replica, password=PASSWORD).get("key") == b"after"
        roundtrip(address, "later")


@pytest.mark.parametrize(
    "url", ["http://redis/0", "redis://redis/0?sentinels=a", "redis://:6379/0", "sentinel://redis:26379/0"]
)
def test_an_address_that_is_none_is_refused_with_what_it_should_be(url: str) -> None:
    with pytest.raises(ValueError, match="HEADRACE_REDIS_URL"):
        RedisAddress.parse(url)
