"""Database work of an asyncio process."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from django.db import close_old_connections

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Calls it in a thread, with a database connection that works."""

    def call() -> T:
        close_old_connections()
        try:
            return function(*arguments, **named)
        finally:
            close_old_connections()

    # Not sync_to_async(): it loses a cancellation that comes while the thread works.
    return await asyncio.to_thread(call)
