"""Redis streams."""

from collections.abc import Sequence
from typing import Any, ClassVar

from redis import Redis

from tests.e2e.matrix.ends import Inlet, Outlet, Record, bodies_of, parsed
from tests.infra import REDIS_PORT


class RedisInlet(Inlet):
    type, fixtures = "redis_stream", ("redis_server",)
    connection = {"host": "127.0.0.1", "port": REDIS_PORT}

    def __init__(self) -> None:
        super().__init__()
        self.options = {"stream": self.name, "group": "matrix", "field": "body"}

    def write(self, records: Sequence[Record]) -> None:
        with Redis(port=REDIS_PORT) as client:
            for body in bodies_of(records):
                client.xadd(self.name, {"body": body})


class RedisOutlet(Outlet):
    type, fixtures = "redis_stream", ("redis_server",)
    connection = {"host": "127.0.0.1", "port": REDIS_PORT}
    output: ClassVar[dict[str, Any]] = {"batch": {"messages": 3, "seconds": 0.2}}

    def __init__(self) -> None:
        super().__init__()
        self.options = {"stream": self.name}

    def read(self) -> list[Record]:
        with Redis(port=REDIS_PORT) as client:
            return [parsed(fields[b"body"]) for _, fields in client.xrange(self.name)]
