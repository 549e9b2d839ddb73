"""Streams of Amazon Kinesis."""

from collections.abc import Sequence
from typing import Any, ClassVar

from tests import kinesis
from tests.e2e.matrix.ends import End, Inlet, Outlet, Record, bodies_of, parsed


class _Stream(End):
    type, servers = "kinesis", (kinesis.kinesis_server,)

    def __init__(self) -> None:
        super().__init__()
        self.connection = kinesis.connection()
        self.options = {"stream": kinesis.make_stream(self.name, 2)}


class KinesisInlet(_Stream, Inlet):
    def write(self, records: Sequence[Record]) -> None:
        client = kinesis.client()
        for number, body in enumerate(bodies_of(records)):
            client.put_record(StreamName=self.name, Data=body, PartitionKey=str(number))


class KinesisOutlet(_Stream, Outlet):
    output: ClassVar[dict[str, Any]] = {"batch": {"messages": 3, "seconds": 0.2}}

    def read(self) -> list[Record]:
        return [parsed(record["Data"]) for record in kinesis.records_of(self.name)]
