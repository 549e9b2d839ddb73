"""Quotas of API keys."""

import time

from confluent_kafka import Consumer, TopicPartition

from tests.gateways import gateways
from tests.infra import VAR
from tests.integration.read_gateway.clients import config, received, wait_until_seen
from tests.integration.read_gateway.conftest import Reading


def test_a_quota_slows_a_key_down(database_url: str, reading: Reading) -> None:
    """A client reads two megabytes with a quota of 500 kB a second, of which a second's worth may come at once."""
    collection = reading.collection(1)
    for begin in range(0, 20):
        collection.write([b"%d " % begin + b"x" * 100_000])
    with gateways(VAR / "gateway-quota", database_url, 1, bytes_per_second="500000", compression="none") as nodes:
        wait_until_seen(nodes, reading.login, collection)
        consumer = Consumer(config(nodes, reading.login, fetch_message_max_bytes=200_000))
        consumer.assign([TopicPartition(collection.topic, 0, 0)])
        began = time.monotonic()
        assert received(consumer, 20).keys() == set(collection.written)
        assert time.monotonic() - began > 2
        consumer.close()
