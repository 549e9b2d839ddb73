"""Moves the horizon of the delivered ledger: the time before which no delivery needs to be remembered any more.

Messages are repeated by inputs whose reader died or failed, by the adapting query, from its last checkpoint, and by
redelivery. Their copies then pass the same topics as the messages. So the deliveries before a moment may be forgotten
once the inputs have recorded what they had read by then, the query's checkpoint has passed what its topic held, and
then every lane what its own topic held, one after the other.
"""

import logging
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any

import redis
from confluent_kafka import KafkaException
from django.db import DatabaseError, InterfaceError, close_old_connections, connection
from redis.exceptions import RedisError

from backend.apps.manager.models import InputLease
from backend.apps.pipelines.models import Pipeline
from backend.domain.capabilities import Reading
from backend.domain.stages import ADAPTING, ADAPTING_SLOW, ADAPTING_TRANSFORMER, FILTERING, SYNDICATING, Stage
from backend.kafka.client.positions import Part, Positions
from backend.network.redis_client import redis_client
from backend.resilience.scripts import LEDGER_HORIZON
from backend.settings import platform_settings

log = logging.getLogger(__name__)

_ROUND_SECONDS = 5.0
_POLL_SECONDS = 1.0

_BETWEEN = (ADAPTING_TRANSFORMER, ADAPTING_SLOW, FILTERING)
"""The lanes that a message may pass several times: a pipeline takes another's messages, which a third one takes."""


_RENEWALS_AFTER_TAKEOVER = 12
"""Renewals of a stream's lease, a minute: a source has delivered again by then what a lost reader had not
acknowledged."""
_LONGEST_HOLD_SECONDS = 2100.0
"""An input that has recorded nothing for longer than a batch may take no longer holds the horizon: the ledger of all
outputs would grow."""


def run(stop: threading.Event) -> None:
    """Runs until ``stop`` is set."""
    client = redis_client()
    positions = Positions(platform_settings().kafka)
    while not stop.is_set():
        close_old_connections()
        try:
            horizon_advance(client, positions, stop)
        except (RedisError, KafkaException, InterfaceError, DatabaseError) as error:
            log.warning("The delivered ledger grows: %s", str(error).splitlines()[0] if str(error) else error)
            connection.close()
        stop.wait(_ROUND_SECONDS)
    positions.close()
    connection.close()


def horizon_advance(client: redis.Redis, positions: Positions, stop: threading.Event) -> None:
    """Waits until no copy of a message that has been delivered by now can arrive any more, and moves the horizon to
    the present time. Raises RedisError, KafkaException and DatabaseError."""
    now: Any = client.time()
    _wait_until_recorded(stop)
    _wait_until_passed([ADAPTING], positions, stop)
    _wait_until_none_is_between(positions, stop)
    _wait_until_passed([SYNDICATING], positions, stop)
    if not stop.is_set():
        client.set(LEDGER_HORIZON, f"{now[0] + now[1] / 1e6:.6f}")


class UnrecordedReads:
    """The inputs which, when this was made, had read records that they may read again, with the same ids."""

    def __init__(self) -> None:
        self._held = {lease.pk: _Read(lease) for lease in InputLease.objects.all() if _may_repeat(lease)}

    def remain(self) -> bool:
        """Whether any of them has still not recorded what it had read then."""
        present = {lease.pk: lease for lease in InputLease.objects.filter(pk__in=self._held)}
        self._held = {pk: read for pk, read in self._held.items() if pk in present and read.is_open(present[pk])}
        return bool(self._held)


class _Read:
    def __init__(self, lease: InputLease) -> None:
        self._token = lease.token
        self._recorded = _recorded(lease)
        # The first record may have been under way at that moment.
        self._missing = 2
        self._is_repeated = lease.token is None

    def is_open(self, lease: InputLease) -> bool:
        if not _may_repeat(lease):
            return False
        if lease.token != self._token:
            self._token, self._is_repeated = lease.token, True
            self._missing = _RENEWALS_AFTER_TAKEOVER
        if _recorded(lease) != self._recorded:
            self._recorded = _recorded(lease)
            self._missing -= 1
        # Another reader of a batch begins at the last recorded breakpoint: how far the former one had come is not
        # known, so only the end of the batch tells that all of that has been read again. A stream has no end: its
        # source delivers again what was not acknowledged.
        is_repeated_to_its_end = self._is_repeated and lease.reading == Reading.BATCHING
        return is_repeated_to_its_end or self._missing > 0


def _may_repeat(lease: InputLease) -> bool:
    """A batch that has failed is read again; one that reads nothing, such as with a wrong password, repeats nothing."""
    return lease.token is not None or bool(lease.failure and lease.rows)


def _recorded(lease: InputLease) -> object:
    """What changes whenever a reader records its progress: a stream acknowledges to its source as it reads."""
    return lease.locked_until if lease.reading == Reading.STREAMING else lease.breakpoint


def _wait_until_recorded(stop: threading.Event) -> None:
    """Waits until nothing that inputs have read by now can be read again."""
    reads, until = UnrecordedReads(), time.monotonic() + _LONGEST_HOLD_SECONDS
    while not stop.is_set() and reads.remain():
        if time.monotonic() > until:
            log.warning("An input has recorded no progress for too long: what it reads again may be delivered again.")
            break
        stop.wait(_POLL_SECONDS)


def _wait_until_none_is_between(positions: Positions, stop: threading.Event) -> None:
    """Waits until every message that the topics between adapting and syndicating hold now has left them. When nothing
    was added while the lanes passed what was there, that is at once."""
    before: dict[Part, int] = {}
    for _ in range(_most_steps_between()):
        ends = _wait_until_passed(_BETWEEN, positions, stop)
        if ends == before:
            return
        before = ends


def _wait_until_passed(stages: Collection[Stage], positions: Positions, stop: threading.Event) -> dict[Part, int]:
    """Waits until each stage has passed what its topic holds now, and returns where that ends."""
    ends = {} if stop.is_set() else positions.ends([stage.topic for stage in stages if stage.topic])
    while not stop.is_set() and not all(_has_passed(stage, ends, positions) for stage in stages):
        stop.wait(_POLL_SECONDS)
    return ends


def _has_passed(stage: Stage, ends: Mapping[Part, int], positions: Positions) -> bool:
    own = {part: end for part, end in ends.items() if part[0] == stage.topic}
    return positions.passed(positions.committed(stage.group, own), own)


def _most_steps_between() -> int:
    """The most topics that a message may pass before it is adapted: three for each pipeline that takes it, of which
    all but the last index it for others."""
    links = Pipeline.objects.filter(published__config__input__type="filter", published__config__index__0__isnull=False)
    return 3 * (links.count() + 2)
