from collections.abc import Iterator
from typing import Any

import pytest

from backend.network.redis_client import async_redis_client
from backend.resilience import gate
from tests.waiting import LIMIT_SECONDS


@pytest.fixture(scope="package", autouse=True)
def _redis_may_take_its_time() -> Iterator[None]:
    """A gate that gets no answer within a second decides by itself, which is not what these tests are about: on a busy
    machine Redis may take longer. One that does not run is noticed at once."""

    def patient_client(url: str, **options: Any) -> Any:
        return async_redis_client(url, **options | {"seconds": LIMIT_SECONDS})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate, "async_redis_client", patient_client)
        yield
