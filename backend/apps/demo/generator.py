"""Posts generated orders to the demo pipelines at the rate set on the dashboard."""

import asyncio
import itertools
import logging
import random
import threading
from typing import Any

import aiohttp
from redis.exceptions import RedisError

from backend.apps.demo.services import GENERATOR_RATE, MOST_PER_SECOND
from backend.network.redis_client import async_redis_client

log = logging.getLogger(__name__)

_IDLE_SECONDS = 1.0
_TICK_SECONDS = 0.1
_NAMES = ("Ana", "Bruno", "Carla", "Davi", "Elisa")
_COUNTRIES = ("BR", "BR", "PT", "AR", "US")


async def run(*, redis_url: str, ingest_url: str, api_key: str, pipeline_ids: list[str], stop: threading.Event) -> None:
    """Runs until ``stop`` is set."""
    numbers = itertools.count(1)
    client = async_redis_client(redis_url)
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {api_key}"}) as session:
        while not stop.is_set():
            try:
                rate = min(int(await client.get(GENERATOR_RATE) or 0), MOST_PER_SECOND)
            except (RedisError, OSError):
                rate = 0
            if rate:
                await _second(session, ingest_url, pipeline_ids, rate, numbers)
            else:
                await asyncio.sleep(_IDLE_SECONDS)


async def _second(
    session: aiohttp.ClientSession, ingest_url: str, pipeline_ids: list[str], rate: int, numbers: Any
) -> None:
    """Posts one second's messages, spread evenly over it."""
    clock = asyncio.get_running_loop().time
    started, sent = clock(), 0
    while (elapsed := clock() - started) < 1.0:
        due = int(rate * min(elapsed + _TICK_SECONDS, 1.0)) - sent
        orders = [_order(next(numbers)) for _ in range(due)]
        posts = [
            _post(session, f"{ingest_url}/v1/pipelines/{pipeline_id}/messages", order)
            for order in orders
            for pipeline_id in pipeline_ids
        ]
        await asyncio.gather(*posts, asyncio.sleep(_TICK_SECONDS))
        sent += due


async def _post(session: aiohttp.ClientSession, url: str, order: dict[str, Any]) -> None:
    try:
        async with session.post(url, json=order) as answer:
            if answer.status >= 400:
                log.warning("The HTTP input answered %d.", answer.status)
    except aiohttp.ClientError as error:
        log.warning("The HTTP input does not answer: %s", error)


def _order(number: int) -> dict[str, Any]:
    return {
        "order": {"id": f"A-{number}", "amount": round(random.uniform(5, 500), 2)},
        "user": {"name": random.choice(_NAMES), "country": random.choice(_COUNTRIES)},
    }
