"""The console's own connection to Redis."""

import redis
from django.conf import settings


def redis_client() -> redis.Redis:
    """Gives up after two seconds, so that a page never hangs on Redis."""
    return redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)
