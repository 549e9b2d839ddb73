"""Clients of what is reached over the network.

The library of Redis looks for OpenTelemetry, which other libraries bring along and nothing here uses: its import takes
longer than that library's own.
"""

import sys

_UNUSED = "opentelemetry"

if "redis" not in sys.modules and _UNUSED not in sys.modules:
    sys.modules[_UNUSED] = None  # type: ignore[assignment]
    try:
        import redis.asyncio  # noqa: F401
    finally:
        del sys.modules[_UNUSED]
