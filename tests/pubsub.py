"""Google's emulator of Pub/Sub for the tests."""

import grpc
from google import pubsub_v1
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from backend.domain.message import new_message_id
from backend.runtime.health import is_listening
from tests.go_programs import built
from tests.infra import Server
from tests.ports import free_ports

[PORT] = free_ports(1)
ENDPOINT = f"127.0.0.1:{PORT}"
PROJECT = "headrace-test"
CONNECTION = {"project": PROJECT, "access": {"type": "emulator", "endpoint": ENDPOINT}}


def emulator_server() -> Server:
    """Not yet started."""
    return Server("pubsub", [str(built("pubsub_emulator")), "-port", str(PORT)], lambda: is_listening(ENDPOINT))


def publisher() -> pubsub_v1.PublisherClient:
    return pubsub_v1.PublisherClient(transport=PublisherGrpcTransport(channel=grpc.insecure_channel(ENDPOINT)))


def subscriber() -> pubsub_v1.SubscriberClient:
    return pubsub_v1.SubscriberClient(transport=SubscriberGrpcTransport(channel=grpc.insecure_channel(ENDPOINT)))


def make_topic() -> tuple[str, str]:
    """The ids of a new topic and of its subscription, which keeps the order of messages."""
    name = f"t-{new_message_id()}"
    topic, subscription = f"projects/{PROJECT}/topics/{name}", f"projects/{PROJECT}/subscriptions/{name}-read"
    publisher().create_topic(name=topic)
    request = {"name": subscription, "topic": topic, "ack_deadline_seconds": 10, "enable_message_ordering": True}
    subscriber().create_subscription(request=request)
    return name, f"{name}-read"
