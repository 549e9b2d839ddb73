"""What Prometheus reads of a proxy."""

from functools import cache

from prometheus_client import Counter, Gauge, Histogram

from backend.kafka_wire.messages import REQUESTS as MESSAGES

_REQUESTS = Counter("headrace_proxy_requests_total", "Requests of clients.", ["api"])
_LATENCY = Histogram(
    "headrace_proxy_request_seconds",
    "From a request's last byte to the answer's first.",
    ["api"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
_BYTES = Counter("headrace_proxy_client_bytes_total", "Bytes of requests and answers.", ["direction"])
BYTES_FROM_CLIENTS = _BYTES.labels("from")
BYTES_TO_CLIENTS = _BYTES.labels("to")
BROKER_BYTES = Counter("headrace_proxy_broker_bytes_total", "Bytes to and from each broker.", ["broker", "direction"])
BROKER_REQUESTS = Counter("headrace_proxy_broker_requests_total", "Requests to each broker.", ["broker"])
OUT_OF_RACK = Counter("headrace_proxy_out_of_rack_requests_total", "Requests to brokers of other racks.")
PEERS_DOWN = Gauge("headrace_proxy_peers_down", "Other proxies that do not answer.")
CONNECTIONS = Gauge("headrace_proxy_client_connections", "Clients' connections.")
REFUSED = Counter("headrace_proxy_refused_connections_total", "Connections that ended for a fault.", ["reason"])
BROKER_FAILURES = Counter(
    "headrace_proxy_broker_failures_total", "Brokers not reached, or lost with requests open.", ["broker"]
)


@cache
def requests(api_key: int) -> Counter:
    return _REQUESTS.labels(_name(api_key))


@cache
def latency(api_key: int) -> Histogram:
    return _LATENCY.labels(_name(api_key))


def _name(api_key: int) -> str:
    """Clients can send any number; those that mean nothing share one name."""
    message = MESSAGES.get(api_key)
    return message.name.removesuffix("Request") if message is not None else "unknown"
