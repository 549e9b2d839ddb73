"""Redelivers dead letters when they are due, each output within its own breaker, rate limit and share."""

import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import KafkaException, Producer
from django.db import DatabaseError, InterfaceError, close_old_connections, connection, transaction
from django.db.models import F, Q
from redis.exceptions import RedisError

from backend.apps.deliveries.breakers import breaker_of
from backend.apps.deliveries.models import DeadLetter
from backend.apps.pipelines.models import Pipeline, PipelineVersion
from backend.domain.breaker import BreakerState
from backend.domain.message import REDELIVERY, REDELIVERY_OUTPUT, Message
from backend.domain.rate_limit import RateLimit, RateLimitPolicy
from backend.domain.stages import STAGES
from backend.kafka.client.producer import PARTITIONER
from backend.network.redis_client import redis_client
from backend.resilience.gate import TOKEN_HORIZON_SECONDS
from backend.resilience.scripts import OutputKey
from backend.settings import platform_settings

log = logging.getLogger(__name__)

_ROUND_SECONDS = 0.25
_RETRY_SECONDS = 1.0
_SHARE = 500
"""The most dead letters of one output that are in redelivery at the same time."""
_CLAIM_LIMIT = timedelta(seconds=30)
"""A claim this old whose message was not acknowledged by Kafka belongs to a worker that died."""
_ANSWER_LIMIT = timedelta(hours=6)
"""A redelivered message is always resolved or fails again; this covers a topic whose records were deleted."""
_BACKLOG_SECONDS = 5
_ACKNOWLEDGE_SECONDS = 10.0

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
        self._producer = Producer(
            {
                "bootstrap.servers": platform_settings().kafka_bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "partitioner": PARTITIONER,
                "message.timeout.ms": int(_ACKNOWLEDGE_SECONDS * 1000),
                "message.max.bytes": 4 * 1024 * 1024,
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
        DeadLetter.objects.filter(
            Q(sent_at=None, claimed_at__lt=now - _CLAIM_LIMIT) | Q(sent_at__lt=now - _ANSWER_LIMIT),
            state=DeadLetter.State.REDELIVERING,
        ).update(state=DeadLetter.State.WAITING, claimed_at=None, sent_at=None)
        self._mark_backlogs()
        released = 0
        for output in _outputs(_WAITING, due=now):
            claimed = self._claim(output, self._allowance(output))
            released += len(claimed)
            if claimed:
                self._send(claimed)
        return released

    # -- how many may go -------------------------------------------------------

    def _allowance(self, output: Output) -> int:
        pipeline_id, name = output
        if not name:
            return _SHARE
        under_way = DeadLetter.objects.filter(
            pipeline_id=pipeline_id, output=name, state=DeadLetter.State.REDELIVERING
        ).count()
        key = OutputKey(str(pipeline_id), name)
        state, until = breaker_of(self._redis, key)
        if state is not BreakerState.CLOSED:
            # One message as a probe, once the penalty is over.
            return 1 if time.time() >= until and not under_way else 0
        share = _SHARE
        limit = _rate_limit_of(pipeline_id, name)
        if limit is not None:
            share = min(share, self._free_tokens(key, limit))
        return max(0, share - under_way)

    def _free_tokens(self, key: OutputKey, limit: RateLimitPolicy) -> int:
        """The number of tokens available within the next second, burst included."""
        stored: Any = self._redis.get(key.limit)
        seconds: Any = self._redis.time()
        shared = RateLimit(limit, full_at=float(stored or 0))
        return len(shared.take(seconds[0] + seconds[1] / 1e6, _SHARE, TOKEN_HORIZON_SECONDS))

    def _mark_backlogs(self) -> None:
        """Marks outputs with waiting rate-limited messages, so that new ones queue behind them."""
        for pipeline_id, name in _outputs(_RATE_LIMITED):
            self._redis.set(OutputKey(str(pipeline_id), name).backlog, 1, ex=_BACKLOG_SECONDS)

    # -- sending ---------------------------------------------------------------

    @staticmethod
    def _claim(output: Output, most: int) -> list[DeadLetter]:
        if most <= 0:
            return []
        pipeline_id, name = output
        with transaction.atomic():
            rows = list(
                DeadLetter.objects.select_for_update(skip_locked=True)
                .filter(pipeline_id=pipeline_id, output=name, state=DeadLetter.State.WAITING, stage__in=_ENTRY)
                .filter(due_at__lte=datetime.now(UTC))
                .order_by("first_at", "id")[:most]
            )
            DeadLetter.objects.filter(pk__in=[row.pk for row in rows]).update(
                state=DeadLetter.State.REDELIVERING, claimed_at=datetime.now(UTC), sent_at=None
            )
        return rows

    def _send(self, rows: list[DeadLetter]) -> None:
        versions = _current_versions(rows)
        sent: list[Any] = []
        for row in rows:
            message = _message(row, versions.get(row.pipeline_id))

            def reported(error: Any, _record: Any, pk: Any = row.pk) -> None:
                if error is None:
                    sent.append(pk)

            while True:
                try:
                    self._producer.produce(
                        _ENTRY[row.stage],
                        message.body,
                        message.key,
                        headers=list(message.headers()),
                        on_delivery=reported,
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
        self._producer.flush(_ACKNOWLEDGE_SECONDS + 1)
        # Unacknowledged ones are claimed again later; those that failed again already are waiting once more.
        DeadLetter.objects.filter(pk__in=sent, state=DeadLetter.State.REDELIVERING).update(sent_at=datetime.now(UTC))


def _outputs(condition: str, due: datetime | None = None) -> list[Output]:
    """Outputs with dead letters that meet the condition and whose first one is due."""
    with connection.cursor() as cursor:
        cursor.execute(_OUTPUTS.format(condition=condition))
        rows = cursor.fetchall()
    return [
        (pipeline_id, name) for pipeline_id, name, first in rows if due is None or (first is not None and first <= due)
    ]


def _rate_limit_of(pipeline_id: Any, name: str) -> RateLimitPolicy | None:
    config = Pipeline.objects.filter(pk=pipeline_id).values_list("published__config", flat=True).first()
    for output in (config or {}).get("outputs", []):
        if output["name"] == name and output.get("rate_limit"):
            return RateLimitPolicy.model_validate(output["rate_limit"])
    return None


def _current_versions(rows: list[DeadLetter]) -> dict[Any, int]:
    pipeline_ids = {row.pipeline_id for row in rows if row.use_current_version and row.pipeline_id}
    return dict(
        PipelineVersion.objects.filter(pk__in=Pipeline.objects.filter(pk__in=pipeline_ids).values("published"))
        .annotate(owner=F("pipeline_id"))
        .values_list("owner", "number")
    )


def _message(row: DeadLetter, current: int | None) -> Message:
    headers: dict[str, str] = dict(row.headers)
    slip = headers.pop("routing-slip", "")
    return Message(
        id=row.message_id,
        pipeline_id=str(row.pipeline_id),
        version=current if row.use_current_version and current is not None else row.version,
        key=bytes(row.key),
        body=bytes(row.body),
        content_type=row.content_type,
        received_at=row.received_at,
        slip=tuple(slip.split(",")) if slip else (),
        extra=headers | {REDELIVERY: str(row.pk), REDELIVERY_OUTPUT: row.output},
    )
