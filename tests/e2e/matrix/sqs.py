"""Queues of Amazon SQS."""

from collections.abc import Sequence
from typing import Any, ClassVar

from tests import moto
from tests.e2e.matrix.ends import End, Inlet, Outlet, Record, bodies_of, parsed


class _Queue(End):
    type, servers = "sqs", (moto.moto_server,)

    def __init__(self) -> None:
        super().__init__()
        self.connection = moto.connection()
        self.sqs = moto.client("sqs")
        self.address = self.sqs.create_queue(QueueName=self.name)["QueueUrl"]
        self.options = {"queue": self.name}

    def close(self) -> None:
        self.sqs.close()


class SqsInlet(_Queue, Inlet):
    def write(self, records: Sequence[Record]) -> None:
        for body in bodies_of(records):
            self.sqs.send_message(QueueUrl=self.address, MessageBody=body.decode())


class SqsOutlet(_Queue, Outlet):
    output: ClassVar[dict[str, Any]] = {"batch": {"messages": 3, "seconds": 0.2}}

    def __init__(self) -> None:
        super().__init__()
        self._records: list[Record] = []

    def read(self) -> list[Record]:
        while messages := self.sqs.receive_message(QueueUrl=self.address, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                self._records.append(parsed(message["Body"]))
                self.sqs.delete_message(QueueUrl=self.address, ReceiptHandle=message["ReceiptHandle"])
        return self._records
