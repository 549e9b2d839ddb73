"""The lag of each stage, in messages."""

from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from confluent_kafka.admin import AdminClient

from backend.apps.jobs.selectors import adapting_progress
from backend.domain import routing
from backend.domain.stages import STAGES, Form
from backend.kafka.client.committed import CommittedOffsets
from backend.kafka.client.ends import end_offsets
from backend.kafka.client.waiting import Span, Tails
from backend.settings import platform_settings

_SECONDS = 5.0
_CONSUMING = (Form.LANE, Form.STORE)

READERS = {
    **{stage.name: stage.topic for stage in STAGES if stage.form in _CONSUMING and stage.topic},
    "dead-letters": routing.DEAD_LETTER,
    "attempts": routing.ATTEMPTS,
    "usage": routing.BILLING,
}
"""The stages and workers that are Kafka consumer groups, ``headrace-NAME``, and what each reads."""


@lru_cache
def _admin() -> AdminClient:
    return AdminClient({**platform_settings().kafka.client(), "log_level": 0})


@lru_cache
def _committed() -> CommittedOffsets:
    return CommittedOffsets({**platform_settings().kafka.client(), "log_level": 0})


@lru_cache
def _tails() -> Tails:
    return Tails({**platform_settings().kafka.client(), "log_level": 0}, "headrace-lag")


def stage_lags() -> dict[str, int]:
    """Messages waiting for each stage; a stage that has never run is left out. Raises KafkaException."""
    topics = {routing.INPUT, *READERS.values()}
    ends = end_offsets(_admin(), topics)
    parts = {name: [part for part in ends if part[0] == topic] for name, topic in READERS.items()}
    asked = [name for name in READERS if parts[name]]
    # Side by side: a group whose coordinator is slow to answer holds up no other.
    with ThreadPoolExecutor(max(1, len(asked)), "lag") as threads:
        positions = threads.map(lambda name: _positions(f"headrace-{name}", parts[name]), asked)
        behind = {
            name: [Span(*part, done.get(part, 0), ends[part]) for part in parts[name]]
            for name, done in zip(asked, positions, strict=True)
            if done
        }
    lags = {name: _tails().waiting(spans, _SECONDS) for name, spans in behind.items()}
    adapting = adapting_progress()
    if adapting is not None:
        lags["adapting"] = adapting.lag({part: end for (topic, part), end in ends.items() if topic == routing.INPUT})
    return lags


def _positions(group: str, parts: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    return {(part.topic, part.partition): part.offset for part in _committed().of(group, parts, _SECONDS)}
