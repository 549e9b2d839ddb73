"""Tasks that talk to other systems, and have to end."""

import asyncio
from typing import Any

_SECONDS = 5.0
"""After this time a task that still runs has lost its cancellation; what it cleans up takes less."""


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancels tasks, and returns once all of them have ended. What a task raised instead is for the caller to ask for;
    asyncio logs it otherwise.

    A client that is about to connect may turn a cancellation into an error of its own, which the task then takes for an
    outage (redis-py does so); such a task is cancelled again.
    """
    running = set(tasks)
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=_SECONDS)
