"""Redelivers dead letters when they are due, each output within its own breaker, rate limit and pace."""

import contextlib
import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from cachetools import LRUCache
from confluent_kafka import KafkaError, KafkaException
from django.db import DatabaseError, InterfaceError, close_old_connections, connection, transaction
from django.db.models import Q, QuerySet
from msgspec.structs import replace
from redis.exceptions import RedisError

from backend.apps.deliveries.breakers import breaker_of
from backend.apps.deliveries.locking import letters_update
from backend.apps.deliveries.models import DeadLetter
from backend.apps.deliveries.redelivery_pace import MOST, Pace
from backend.apps.deliveries.selectors import rate_limits_of
from backend.apps.kafka_sink.faults import is_data_fault, storable
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.selectors import snapshot_by_number
from backend.apps.usage.billed import Delivery, billed_among
from backend.domain import json, limits, routing
from backend.domain.breaker import BreakerState
from backend.domain.filters.fields import index_of
from backend.domain.message import INDEX, REDELIVERY, REDELIVERY_OUTPUT, Message
from backend.domain.message_maker import MessageMaker, is_json
from backend.domain.model import UnreadableConfigError
from backend.domain.pipeline import PipelineSnapshot
from backend.domain.rate_limit import RateLimit, RateLimitPolicy
from backend.domain.reasons import Reason
from backend.domain.retry import held_text
from backend.domain.stages import ADAPTING_TRANSFORMER, FILTERING, STAGES
from backend.kafka.client.blocking_producer import BlockingProducer
from backend.kafka.client.producer import RECORD_FAULTS
from backend.network.redis_client import redis_client
from backend.resilience.gate import TOKEN_HORIZON_SECONDS
from backend.resilience.scripts import OutputKey
from backend.settings import platform_settings

log = logging.getLogger(__name__)

_ROUND_SECONDS = 0.25
_RETRY_SECONDS = 1.0
_PACES_KNOWN = 10_000
_CLAIM_LIMIT = timedelta(seconds=30)
"""A claim this old whose message was not acknowledged by Kafka belongs to a worker that died."""
_ANSWER_LIMIT = timedelta(hours=6)
"""A redelivered message is always resolved or fails again; this covers a topic whose records were deleted."""
_DELIVERED_BEFORE = "It is a copy of a message that was delivered before."
_BACKLOG_SECONDS = 5

_ENTRY = {stage.name: stage.topic for stage in STAGES if stage.redelivers and stage.topic}
"""The topic to which a dead letter of each stage is produced again. Others, such as malformed records, cannot be
redelivered."""

REDELIVERED_STAGES = tuple(_ENTRY)

Output = tuple[Any, str]

_WAITING = "state = 'waiting'"
_RATE_LIMITED = "reason = 'rate_limited' AND state IN ('waiting', 'redelivering')"
_OUTPUTS = """
    WITH RECURSIVE firsts AS (
        (SELECT pipeline_id, output, due_at FROM deliveries_deadletter WHERE {condition}
         ORDER BY pipeline_id, output, due_at LIMIT 1)
        UNION ALL
        SELECT later.* FROM firsts CROSS JOIN LATERAL (
            SELECT pipeline_id, output, due_at FROM deliveries_deadletter
            WHERE {condition} AND (pipeline_id, output) > (firsts.pipeline_id, firsts.output)
            ORDER BY pipeline_id, output, due_at LIMIT 1
        ) AS later
    )
    SELECT pipeline_id, output, due_at FROM firsts
"""
"""The first dead letter of each output: one index lookup for each, where DISTINCT would read all waiting rows."""


class Redelivery:
    """The redelivery loop of one worker. Several may run: rows are claimed with SKIP LOCKED."""

    def __init__(self) -> None:
        self._redis = redis_client()
        self._paces: LRUCache[Output, Pace] = LRUCache(_PACES_KNOWN)
        self._producer = BlockingProducer(
            {
                **platform_settings().kafka.client(),
                "message.max.bytes": limits.TOPIC_BYTES,
                "reconnect.backoff.max.ms": 1000,
            }
        )

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            close_old_connections()
            try:
                released = self.round()
                stop.wait(0 if released else _ROUND_SECONDS)
            except (InterfaceError, DatabaseError, RedisError, KafkaException) as error:
                log.warning("Redelivery is delayed: %s", str(error).splitlines()[0] if str(error) else error)
                connection.close()
                stop.wait(_RETRY_SECONDS)
        connection.close()

    def round(self) -> int:
        """Sends what is due and allowed, and returns how many."""
        now = datetime.now(UTC)
        unanswered = DeadLetter.objects.filter(
            Q(sent_at=None, claimed_at__lt=now - _CLAIM_LIMIT) | Q(sent_at__lt=now - _ANSWER_LIMIT),
            state=DeadLetter.State.REDELIVERING,
        )
        letters_update(unanswered, state=DeadLetter.State.WAITING, claimed_at=None, sent_at=None)
        self._mark_backlogs()
        released = 0
        for output in _outputs(_WAITING, due=now):
            if (until := self._held_until(output)) is not None:
                released += self._put_off(output, until)
                continue
            pace = self._paces.setdefault(output, Pace())
            pace.learn()
            claimed = self._claim(output, self._allowance(output, pace.allowed))
            released += len(claimed)
            if claimed:
                self._send(claimed)
                pace.sent(claimed)
        return released

    # -- how many may go -------------------------------------------------------

    def _allowance(self, output: Output, allowed: int) -> int:
        """Of the dead letters that its pace allows to be in redelivery, those that may go now."""
        pipeline_id, name = output
        under_way = DeadLetter.objects.filter(
            pipeline_id=pipeline_id, output=name, state=DeadLetter.State.REDELIVERING
        ).count()
        if not name:
            return max(0, allowed - under_way)
        key = OutputKey(str(pipeline_id), name)
        state, until = breaker_of(self._redis, key)
        if state is not BreakerState.CLOSED:
            # One message as a probe, once the open time has ended.
            return 1 if time.time() >= until and not under_way else 0
        limit = _rate_limit_of(pipeline_id, name)
        if limit is not None:
            allowed = min(allowed, self._free_tokens(key, limit))
        return max(0, allowed - under_way)

    def _free_tokens(self, key: OutputKey, limit: RateLimitPolicy) -> int:
        """The number of tokens available within the next second, burst included."""
        stored: Any = self._redis.get(key.limit)
        seconds: Any = self._redis.time()
        shared = RateLimit(limit, full_at=float(stored or 0))
        return len(shared.take(seconds[0] + seconds[1] / 1e6, MOST, TOKEN_HORIZON_SECONDS))

    def _mark_backlogs(self) -> None:
        """Marks outputs with waiting rate-limited messages, so that new ones queue behind them."""
        for pipeline_id, name in _outputs(_RATE_LIMITED):
            self._redis.set(OutputKey(str(pipeline_id), name).backlog, 1, ex=_BACKLOG_SECONDS)

    def _held_until(self, output: Output) -> float | None:
        """Until when the receiver asked to be left alone, if what is sent now would be kept back for that."""
        pipeline_id, name = output
        until: Any = self._redis.get(OutputKey(str(pipeline_id), name).hold) if name else None
        return float(until) if until and float(until) - time.time() > TOKEN_HORIZON_SECONDS else None

    @staticmethod
    def _put_off(output: Output, until: float) -> int:
        """Lets what is due wait for the end of the hold, as a lane would: what a user redelivers shows why it waits.
        Returns how many were put off."""
        with transaction.atomic():
            keys = list(_due(output, MOST).values_list("pk", flat=True))
            return DeadLetter.objects.filter(pk__in=keys).update(
                reason=Reason.RATE_LIMITED, error=held_text(until), due_at=datetime.fromtimestamp(until, UTC)
            )

    # -- sending ---------------------------------------------------------------

    @staticmethod
    def _claim(output: Output, most: int) -> list[DeadLetter]:
        if most <= 0:
            return []
        with transaction.atomic():
            rows = list(_due(output, most))
            billed = _billed(rows)
            DeadLetter.objects.filter(pk__in=billed).update(
                state=DeadLetter.State.DELIVERED, closed_at=datetime.now(UTC), closed_why=_DELIVERED_BEFORE
            )
            rows = [row for row in rows if row.pk not in billed]
            claimed_at = datetime.now(UTC)
            for row in rows:
                row.claimed_at = claimed_at
            DeadLetter.objects.filter(pk__in=[row.pk for row in rows]).update(
                state=DeadLetter.State.REDELIVERING, claimed_at=claimed_at, sent_at=None
            )
        return rows

    def _send(self, rows: list[DeadLetter]) -> None:
        versions = _current_versions(rows)
        sent: list[Any] = []
        refused: list[tuple[DeadLetter, Exception]] = []
        for row in rows:
            try:
                self._produce(row, versions.get(row.pipeline_id), sent, refused)
            except Exception as error:
                if not is_data_fault(error) and not _blames_record(error):
                    raise
                refused.append((row, error))
        self._producer.flush()
        # Unacknowledged ones are claimed again later; those that failed again already are waiting once more.
        acknowledged = DeadLetter.objects.filter(pk__in=sent, state=DeadLetter.State.REDELIVERING)
        letters_update(acknowledged, sent_at=datetime.now(UTC))
        for row, refusal in refused:
            _put_back(row, refusal)

    def _produce(
        self,
        row: DeadLetter,
        current: PipelineSnapshot | None,
        sent: list[Any],
        refused: list[tuple[DeadLetter, Exception]],
    ) -> None:
        """Produces the dead letter. Its key is added to ``sent`` once Kafka has it; ``refused`` gets those that Kafka
        cannot store. Raises a data fault for a row that cannot become a message."""
        topic, message = _addressed(row, current)

        def reported(error: KafkaError | None, _record: Any) -> None:
            if error is None:
                sent.append(row.pk)
            elif error.code() in RECORD_FAULTS:
                refused.append((row, KafkaException(error)))

        self._producer.send(topic, key=message.key, value=message.body, headers=message.headers(), on_delivery=reported)


def _due(output: Output, most: int) -> QuerySet[DeadLetter]:
    """The output's dead letters that are due, oldest first; locked, without those that others have locked."""
    pipeline_id, name = output
    waiting = DeadLetter.objects.filter(
        pipeline_id=pipeline_id, output=name, state=DeadLetter.State.WAITING, stage__in=_ENTRY
    )
    due = waiting.filter(due_at__lte=datetime.now(UTC)).order_by("first_at", "id")
    return due.select_for_update(skip_locked=True)[:most]


def _blames_record(error: Exception) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in RECORD_FAULTS


def _put_back(row: DeadLetter, error: Exception) -> None:
    """Lets a dead letter wait for a user, who may discard it or redrive it in another way: nothing but its own content
    prevents its redelivery, so trying again would fail in the same way."""
    if isinstance(error, limits.TooLargeError):
        reason, text = Reason.TOO_LARGE, str(error)
    elif isinstance(error, KafkaException):
        reason, text = Reason.REFUSED_BY_KAFKA, f"Kafka refuses the message: {error.args[0].str()}."
    else:
        reason, text = Reason.INTERNAL, f"The message cannot be redelivered: {type(error).__name__}: {error}"
        log.error("Dead letter %s cannot be redelivered.", row.pk, exc_info=error)
    DeadLetter.objects.filter(pk=row.pk, state=DeadLetter.State.REDELIVERING).update(
        state=DeadLetter.State.WAITING,
        reason=reason,
        error=storable(text[: limits.ERROR_CHARACTERS]),
        last_at=datetime.now(UTC),
        due_at=None,
        claimed_at=None,
        sent_at=None,
    )


def _billed(rows: list[DeadLetter]) -> set[Any]:
    """The keys of those that are copies of a message which the output has had: it was billed for it."""
    deliveries = {
        row.pk: Delivery.of(row.message_id, str(row.pipeline_id), row.output)
        for row in rows
        if row.output and row.pipeline_id
    }
    billed = billed_among(list(deliveries.values()))
    return {pk for pk, delivery in deliveries.items() if delivery in billed}


def _outputs(condition: str, due: datetime | None = None) -> list[Output]:
    """Outputs with dead letters that meet the condition and whose first one is due."""
    with connection.cursor() as cursor:
        cursor.execute(_OUTPUTS.format(condition=condition))
        rows = cursor.fetchall()
    return [
        (pipeline_id, name) for pipeline_id, name, first in rows if due is None or (first is not None and first <= due)
    ]


def _rate_limit_of(pipeline_id: Any, name: str) -> RateLimitPolicy | None:
    """None under a version that cannot be read as well: the message fails again in its stage, with that reason."""
    version_id = Pipeline.objects.filter(pk=pipeline_id).values_list("published", flat=True).first()
    return rate_limits_of(version_id).get(name) if version_id is not None else None


def _current_versions(rows: list[DeadLetter]) -> dict[Any, PipelineSnapshot]:
    """The published versions of the pipelines whose dead letters are to be sent under them. One that is unpublished
    or cannot be read is left out."""
    current: dict[Any, PipelineSnapshot] = {}
    for pipeline_id in {row.pipeline_id for row in rows if row.use_current_version and row.pipeline_id}:
        with contextlib.suppress(UnreadableConfigError):
            if snapshot := snapshot_by_number(pipeline_id, 0):
                current[pipeline_id] = snapshot
    return current


def _addressed(row: DeadLetter, current: PipelineSnapshot | None) -> tuple[str, Message]:
    """The dead letter as a message again, and the topic it goes to."""
    headers: dict[str, str] = dict(row.headers)
    slip = headers.pop("routing-slip", "")
    message = Message(
        id=row.message_id,
        pipeline_id=str(row.pipeline_id),
        version=row.version,
        key=bytes(row.key),
        body=bytes(row.body),
        content_type=row.content_type,
        received_at=row.received_at,
        slip=tuple(slip.split(",")) if slip else (),
        extra=headers,
    )
    topic = _ENTRY[row.stage]
    if row.use_current_version and current is not None:
        topic, message = _rerouted(row.stage, message, current)
    marks = {REDELIVERY: str(row.pk), REDELIVERY_OUTPUT: row.output}
    return topic, replace(message, extra=message.extra | marks)


def _rerouted(stage: str, message: Message, current: PipelineSnapshot) -> tuple[str, Message]:
    """The message under the current version: it passes those stages of that version that are still ahead of it."""
    message = replace(message, version=current.version)
    if stage == ADAPTING_TRANSFORMER.name:
        # It is as it was received, so it enters anew, but stays in the order in which it was accepted.
        maker = MessageMaker(current)
        try:
            made = maker.make(
                message.body,
                message.content_type,
                received_at=message.received_at,
                headers=message.extra,
                message_id=message.id,
            )
        except json.InvalidJsonError:
            return _ENTRY[stage], message  # to fail there with its reason
        return maker.topic, replace(made, key=message.key)
    if stage == FILTERING.name:
        config = current.config
        slip = (routing.ADAPTED,) if config.outputs else ()
        extra = {name: value for name, value in message.extra.items() if name != INDEX}
        if slip and not config.index:
            return routing.ADAPTED, replace(message, slip=(), extra=extra)
        index = index_of(config.index, _document(message)).decode()
        return routing.FILTER, replace(message, slip=slip, extra=extra | {INDEX: index})
    return _ENTRY[stage], message


def _document(message: Message) -> Any:
    try:
        return json.loads(message.body) if is_json(message.content_type) else None
    except json.InvalidJsonError:
        return None
