"""A gateway's metrics for Prometheus."""

from functools import cache

from prometheus_client import Counter, Gauge, Histogram

from backend.kafka.wire.messages import REQUESTS as MESSAGES

_REQUESTS = Counter("headrace_gateway_requests_total", "Requests from clients.", ["api"])
_LATENCY = Histogram(
    "headrace_gateway_request_seconds",
    "Time from a request to its answer; a fetch includes its wait for records.",
    ["api"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
CONNECTIONS = Gauge("headrace_gateway_client_connections", "Open client connections.")
REFUSED = Counter(
    "headrace_gateway_refused_connections_total",
    "Client connections that the gateway closed, by reason.",
    ["reason"],
)
FETCHED_BYTES = Counter("headrace_gateway_fetched_bytes_total", "Bytes of record batches sent to clients.")
THROTTLED_SECONDS = Counter("headrace_gateway_throttled_seconds_total", "Seconds that quotas made clients wait.")


@cache
def requests(api_key: int) -> Counter:
    return _REQUESTS.labels(MESSAGES[api_key].name.removesuffix("Request"))


@cache
def latency(api_key: int) -> Histogram:
    return _LATENCY.labels(MESSAGES[api_key].name.removesuffix("Request"))
