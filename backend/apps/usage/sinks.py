"""Bills the deliveries that Kafka reports."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from confluent_kafka import Message as KafkaRecord

from backend.apps.kafka_sink.sink import Sink
from backend.apps.usage.billed import Billing, Delivery, bill
from backend.domain import routing


class _Event(msgspec.Struct):
    message_id: str
    workspace_id: str
    pipeline_id: str
    output: str
    bytes: int
    at: datetime


_decoder = msgspec.json.Decoder(_Event)


class UsageSink(Sink):
    """``firehose_billing``: each delivery once, and deliveries and bytes per minute and output."""

    name = "usage"
    topic = routing.BILLING

    def write(self, records: Sequence[KafkaRecord]) -> None:
        billings: dict[Delivery, Billing] = {}
        for record in records:
            event = _decoder.decode(record.value() or b"")  # type: ignore[arg-type]
            delivery = Delivery.of(event.message_id, event.pipeline_id, event.output)
            billings.setdefault(delivery, Billing(delivery, event.workspace_id, event.at, event.bytes))
        bill(billings.values())
