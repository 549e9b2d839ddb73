"""The metrics at ``/metrics``: of the whole installation, and of this process."""

from collections.abc import Iterator
from typing import Any

import redis
from confluent_kafka import KafkaException
from django.db.models import Sum
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from backend.apps.deliveries.breakers import breaker_of
from backend.apps.deliveries.selectors import waiting_by_output
from backend.apps.jobs.lag import stage_lags
from backend.apps.jobs.models import LostMessages, SparkJob
from backend.apps.kafka_sink.selectors import quarantined_by_reason
from backend.apps.pipelines.models import Pipeline, Registration
from backend.domain.breaker import BreakerState
from backend.network.redis_client import redis_client
from backend.resilience.scripts import OutputKey
from backend.telemetry import events, keys

_STATES = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}


def exposition() -> bytes:
    """The metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    registry.register(_Installation())
    return generate_latest(registry)


class _Installation(Collector):
    def collect(self) -> Iterator[Metric]:
        client = redis_client()
        pipelines = list(Pipeline.objects.exclude(published=None).values_list("pk", "published__breakers"))
        yield from _counts(client, [str(pk) for pk, _ in pipelines])
        yield _breakers(client, [(str(pk), name) for pk, names in pipelines for name in names])
        yield _dead_letters()
        yield _quarantined()
        yield from _registrations()
        yield from _jobs()
        yield from _lags()


def _counts(client: redis.Redis, pipelines: list[str]) -> Iterator[Metric]:
    counter = CounterMetricFamily("headrace_messages", "Messages by event.", labels=["pipeline", "event"])
    latency = HistogramMetricFamily(
        "headrace_delivery_seconds", "Response times of receivers.", labels=["pipeline", "output"]
    )
    for pipeline in pipelines:
        classes: dict[str, dict[int, int]] = {}
        totals: Any = client.hgetall(keys.totals(pipeline))
        for raw, n in totals.items():
            event = raw.decode()
            if event.startswith(events.LATENCY):
                output, _, bound = event.removeprefix(events.LATENCY).rpartition(".")
                classes.setdefault(output, {})[int(bound)] = int(n)
            else:
                counter.add_metric([pipeline, event], int(n))
        for output, counts in classes.items():
            latency.add_metric([pipeline, output], *_histogram(counts))
    yield counter
    yield latency


def _histogram(classes: dict[int, int]) -> tuple[list[tuple[str, float]], float]:
    """Cumulative buckets, and a sum estimated from the classes' upper bounds."""
    total, buckets = 0, []
    for bound in events.LATENCY_BOUNDS[:-1]:
        total += classes.get(bound, 0)
        buckets.append((str(bound / 1000), float(total)))
    buckets.append(("+Inf", float(sum(classes.values()))))
    return buckets, sum(bound / 1000 * n for bound, n in classes.items())


def _breakers(client: redis.Redis, outputs: list[tuple[str, str]]) -> Metric:
    gauge = GaugeMetricFamily("headrace_breaker_state", "0 closed, 1 half-open, 2 open.", labels=["pipeline", "output"])
    for pipeline, output in outputs:
        gauge.add_metric([pipeline, output], _STATES[breaker_of(client, OutputKey(pipeline, output))[0]])
    return gauge


def _dead_letters() -> Metric:
    gauge = GaugeMetricFamily(
        "headrace_dead_letters", "Waiting and redelivering dead letters.", labels=["pipeline", "output"]
    )
    for (pipeline, output), n in waiting_by_output().items():
        gauge.add_metric([str(pipeline), output], n)
    return gauge


def _quarantined() -> Metric:
    gauge = GaugeMetricFamily(
        "headrace_quarantined_records",
        "Records that a worker could not write to the database and has set aside.",
        labels=["sink", "reason"],
    )
    for labels, n in quarantined_by_reason().items():
        gauge.add_metric(labels, n)
    return gauge


def _registrations() -> Iterator[Metric]:
    labels = ["pipeline", "place"]
    endangered = GaugeMetricFamily(
        "headrace_registration_endangered", "Whether there is a warning about it.", labels=labels
    )
    measures = GaugeMetricFamily(
        "headrace_registration", "Numbers about what was made in other systems.", labels=[*labels, "measure"]
    )
    for registration in Registration.objects.filter(remove_at=None):
        names = [str(registration.pipeline_id), registration.place]
        endangered.add_metric(names, int(bool(registration.warning)))
        for measure, value in registration.measures.items():
            measures.add_metric([*names, measure], value)
    yield endangered
    yield measures


def _jobs() -> Iterator[Metric]:
    up = GaugeMetricFamily("headrace_job_up", "Whether the Spark application is running.", labels=["job"])
    well = GaugeMetricFamily("headrace_job_healthy", "Whether all of its stages make progress.", labels=["job"])
    for job in SparkJob.objects.all():
        runs = job.status == SparkJob.Status.RUNNING
        up.add_metric([job.name], int(runs))
        well.add_metric([job.name], int(runs and not job.problem))
    yield up
    yield well
    lost = CounterMetricFamily(
        "headrace_lost_messages", "Deleted by retention before they were read.", labels=["stage"]
    )
    for stage, n in LostMessages.objects.values_list("stage").annotate(Sum("count")):
        lost.add_metric([stage], n)
    yield lost


def _lags() -> Iterator[Metric]:
    gauge = GaugeMetricFamily("headrace_stage_lag", "Messages waiting for a stage.", labels=["stage"])
    try:
        for stage, lag in stage_lags().items():
            gauge.add_metric([stage], lag)
    except KafkaException:
        return  # without Kafka, no value is better than a wrong one
    yield gauge
