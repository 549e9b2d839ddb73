"""Clients of Redis: every call has a timeout, so that nothing hangs because Redis does."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from backend.settings import platform_settings

ANSWER_SECONDS = 2.0
"""The longest wait for a connection, and for an answer."""
_HEALTH_CHECK_SECONDS = 10
_PORT, _SENTINEL_PORT = 6379, 26379

# A connection that Redis closed while it was idle is noticed with the first command, which is sent once more. After a
# timeout nothing is repeated: whoever waits has waited enough.
_REPEATED = (RedisConnectionError,)


@dataclass(frozen=True)
class RedisAddress:
    """``redis://USER:PASSWORD@HOST:PORT/DB``, with TLS ``rediss://`` and the authority in ``?ca=FILE``.

    With ``?sentinel=NAME``, the hosts, separated by commas, are Sentinels: they are asked for the server of this name,
    now and after each failover. They have the servers' password.
    """

    hosts: list[tuple[str, int]]
    sentinel: str
    user: str | None
    password: str | None
    db: int
    tls: dict[str, str | None] | None
    """Keyword arguments of each connection, which name files."""

    @classmethod
    def parse(cls, url: str, password: str = "") -> "RedisAddress":
        """``password`` counts if the address has none. Raises ValueError."""
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        if parts.scheme not in ("redis", "rediss") or query.keys() - {"ca", "certificate", "sentinel"}:
            raise ValueError(
                "HEADRACE_REDIS_URL must be redis://HOST:PORT/DB or, with TLS, rediss://HOST:PORT/DB, "
                "optionally with the parameters ca=FILE, certificate=FILE and sentinel=NAME."
            )
        login, _, hosts = parts.netloc.rpartition("@")
        user, _, own_password = map(unquote, login.partition(":"))
        sentinel, certificate = query.get("sentinel", ""), query.get("certificate")
        tls = {"ssl_ca_certs": query.get("ca"), "ssl_certfile": certificate, "ssl_keyfile": certificate}
        return cls(
            hosts=[_host(host, _SENTINEL_PORT if sentinel else _PORT) for host in hosts.split(",")],
            sentinel=sentinel,
            user=user or None,
            password=own_password or password or None,
            db=int(parts.path.strip("/") or 0),
            tls=tls if parts.scheme == "rediss" else None,
        )

    def client(self, **options: Any) -> redis.Redis:
        """``options`` are keyword arguments of its connections."""
        if self.sentinel:
            client: redis.Redis = self._sentinels(redis.sentinel.Sentinel, options)
            return client
        [(host, port)] = self.hosts
        return redis.Redis(host=host, port=port, **self._options, **options)

    def async_client(self, **options: Any) -> redis.asyncio.Redis:
        if self.sentinel:
            client: redis.asyncio.Redis = self._sentinels(redis.asyncio.sentinel.Sentinel, options)
            return client
        [(host, port)] = self.hosts
        return redis.asyncio.Redis(host=host, port=port, **self._options, **options)

    def _sentinels(self, sentinel: Any, options: dict[str, Any]) -> Any:
        sentinels = sentinel(self.hosts, sentinel_kwargs=self._sentinel_options, **options)
        return sentinels.master_for(self.sentinel, **self._options)

    @property
    def celery_url(self) -> str:
        """The address in the syntax of Celery, which lets TLS and Sentinels be set elsewhere."""
        login = f"{quote(self.user or '', '')}:{quote(self.password, '')}@" if self.password else ""
        scheme = "sentinel" if self.sentinel else "redis"
        return ";".join(f"{scheme}://{login}{host}:{port}/{self.db}" for host, port in self.hosts)

    @property
    def celery_options(self) -> dict[str, Any]:
        if not self.sentinel:
            return {}
        return {"master_name": self.sentinel, "sentinel_kwargs": self._sentinel_options}

    @property
    def _options(self) -> dict[str, Any]:
        return {"username": self.user, "password": self.password, "db": self.db, **self._tls_options}

    @property
    def _sentinel_options(self) -> dict[str, Any]:
        waits = {"socket_timeout": ANSWER_SECONDS, "socket_connect_timeout": ANSWER_SECONDS}
        return {"password": self.password, **waits, **self._tls_options}

    @property
    def _tls_options(self) -> dict[str, Any]:
        return {"ssl": True, **self.tls} if self.tls is not None else {}


def _host(text: str, default_port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(f"HEADRACE_REDIS_URL: {text!r} is no host.")
    return parts.hostname, parts.port or default_port


def redis_address(url: str = "") -> RedisAddress:
    """Without ``url``, of the platform's Redis. Raises ValueError."""
    settings = platform_settings()
    return RedisAddress.parse(url or settings.redis_url, settings.redis_password.get_secret_value())


@lru_cache
def redis_client(url: str = "") -> redis.Redis:
    """The process's client, whose connections all threads share. Without ``url``, of the platform's Redis."""
    return redis_address(url).client(
        socket_timeout=ANSWER_SECONDS,
        socket_connect_timeout=ANSWER_SECONDS,
        retry=Retry(NoBackoff(), 1, supported_errors=_REPEATED),
    )


def async_redis_client(url: str, *, seconds: float = ANSWER_SECONDS, repeat: bool = True) -> redis.asyncio.Redis:
    """A client for one event loop, which its owner closes.

    Without ``repeat`` no command is sent twice, for those that must not be carried out twice.
    """
    return redis_address(url).async_client(
        socket_timeout=seconds,
        socket_connect_timeout=seconds,
        retry=AsyncRetry(NoBackoff(), int(repeat), supported_errors=_REPEATED),
    )


def async_redis_subscriber(url: str) -> redis.asyncio.Redis:
    """A client for pub/sub. Its connections are probed while they are silent; how long a message is waited for is
    for ``get_message`` to say."""
    return redis_address(url).async_client(
        socket_timeout=ANSWER_SECONDS,
        socket_connect_timeout=ANSWER_SECONDS,
        socket_keepalive=True,
        health_check_interval=_HEALTH_CHECK_SECONDS,
        # Not repeated: a subscription that was lost may have missed messages, which its owner has to know.
        retry=AsyncRetry(NoBackoff(), 0),
    )
