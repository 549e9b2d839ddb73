"""Clients of Redis: every one gives up in time, so that nothing hangs because Redis does."""

from functools import lru_cache

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from backend.settings import platform_settings

ANSWER_SECONDS = 2.0
"""The longest wait for a connection, and for an answer."""
_HEALTH_CHECK_SECONDS = 10

# A connection that Redis closed while it was idle is noticed with the first command, which is sent once more. After a
# timeout nothing is repeated: whoever waits has waited enough.
_REPEATED = (RedisConnectionError,)


@lru_cache
def redis_client(url: str = "") -> redis.Redis:
    """The process's client, whose connections all threads share. Without ``url``, of the platform's Redis."""
    return redis.from_url(
        url or platform_settings().redis_url,
        socket_timeout=ANSWER_SECONDS,
        socket_connect_timeout=ANSWER_SECONDS,
        retry=Retry(NoBackoff(), 1, supported_errors=_REPEATED),
    )


def async_redis_client(url: str, *, seconds: float = ANSWER_SECONDS, repeat: bool = True) -> redis.asyncio.Redis:
    """A client for one event loop, which its owner closes.

    Without ``repeat`` no command is sent twice, for those that must not be carried out twice.
    """
    return redis.asyncio.from_url(
        url,
        socket_timeout=seconds,
        socket_connect_timeout=seconds,
        retry=AsyncRetry(NoBackoff(), int(repeat), supported_errors=_REPEATED),
    )


def async_redis_subscriber(url: str) -> redis.asyncio.Redis:
    """A client for pub/sub. Its connections are probed while they are silent; how long a message is waited for is
    for ``get_message`` to say."""
    return redis.asyncio.from_url(
        url,
        socket_timeout=ANSWER_SECONDS,
        socket_connect_timeout=ANSWER_SECONDS,
        socket_keepalive=True,
        health_check_interval=_HEALTH_CHECK_SECONDS,
        # Not repeated: a subscription that was lost may have missed messages, which its owner has to know.
        retry=AsyncRetry(NoBackoff(), 0),
    )
