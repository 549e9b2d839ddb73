"""Requests from the brokers what a lookup lacks: topics, brokers and coordinators."""

from collections.abc import Awaitable, Callable

from backend.kafka.proxy.addresses import learn_coordinator
from backend.kafka.proxy.routing import Lookup
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey
from backend.kafka.wire.structs import Struct

_METADATA_VERSION = 12
_FIND_COORDINATOR_VERSION = 4

RequestAny = Callable[[ApiKey, int, Struct], Awaitable[Struct | None]]
"""Sends a request of the proxy's own to any broker; None when no broker answers."""


async def discover(lookup: Lookup, request_any: RequestAny) -> None:
    """Adds to the lookup's topology what the lookup has noted as missing, as far as brokers answer."""
    if lookup.topics or lookup.cluster or not lookup.topology.brokers:
        await _discover_topics(lookup, request_any)
    for kind, key in lookup.coordinators:
        body = codec.request_type(ApiKey.FIND_COORDINATOR)(key_type=kind, coordinator_keys=[key])
        answer = await request_any(ApiKey.FIND_COORDINATOR, _FIND_COORDINATOR_VERSION, body)
        for coordinator in answer.coordinators if answer is not None else ():
            learn_coordinator(kind, key, coordinator, lookup)


async def _discover_topics(lookup: Lookup, request_any: RequestAny) -> None:
    request = codec.request_type(ApiKey.METADATA)
    topic = request.type_of("topics")
    topics = [topic(name=k) if isinstance(k, str) else topic(topic_id=k, name=None) for k in lookup.topics]
    body = request(topics=topics, allow_auto_topic_creation=False)
    answer = await request_any(ApiKey.METADATA, _METADATA_VERSION, body)
    if answer is not None:
        lookup.topology.learn_metadata(answer)
