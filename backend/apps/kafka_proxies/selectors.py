"""The Kafka proxies of the installation, as they report themselves."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests
from django.conf import settings

_SECONDS = 2.0
_MOST_AT_ONCE = 8


def kafka_proxies() -> list[dict[str, Any]]:
    """Each configured proxy with its status. ``status`` is None if it does not answer; ``error`` says why."""
    urls = [url.strip().rstrip("/") for url in settings.CONSOLE.kafka_proxies.split(",") if url.strip()]
    if not urls:
        return []
    with ThreadPoolExecutor(min(len(urls), _MOST_AT_ONCE)) as pool:
        return list(pool.map(_ask, urls))


def _ask(url: str) -> dict[str, Any]:
    try:
        answer = requests.get(f"{url}/status", timeout=_SECONDS)
        if not answer.ok:
            return {"url": url, "status": None, "error": f"It answered with status {answer.status_code}."}
        return {"url": url, "status": answer.json(), "error": ""}
    except (requests.RequestException, ValueError):
        return {"url": url, "status": None, "error": "It does not answer; is the process running?"}
