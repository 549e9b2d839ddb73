"""Database work of the gateway's event loop."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from django.db import Error

from backend.apps.manager.threads import in_thread
from backend.kafka.gateway.ports import StoreError

P = ParamSpec("P")
T = TypeVar("T")


async def stored(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Calls it in a thread. Raises StoreError when the database does not answer."""
    try:
        return await in_thread(function, *arguments, **named)
    except Error as error:
        raise StoreError(f"{error}".strip() or type(error).__name__) from error
