"""The metrics at ``/metrics``: of the whole installation, and of this process."""

from collections.abc import Iterator
from typing import Any

import redis
from confluent_kafka import KafkaException
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from backend.apps.deliveries.breakers import breaker_of
from backend.apps.deliveries.selectors import waiting_by_output
from backend.apps.jobs.lag import stage_lags
from backend.apps.jobs.models import SparkJob
from backend.apps.pipelines.models import Pipeline
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
        yield _jobs()
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


def _jobs() -> Metric:
    gauge = GaugeMetricFamily("headrace_job_up", "Whether the Spark application is running.", labels=["job"])
    for job in SparkJob.objects.all():
        gauge.add_metric([job.name], int(job.status == SparkJob.Status.RUNNING))
    return gauge


def _lags() -> Iterator[Metric]:
    gauge = GaugeMetricFamily("headrace_stage_lag", "Messages waiting for a stage.", labels=["stage"])
    try:
        for stage, lag in stage_lags().items():
            gauge.add_metric([stage], lag)
    except KafkaException:
        return  # without Kafka, no value is better than a wrong one
    yield gauge
