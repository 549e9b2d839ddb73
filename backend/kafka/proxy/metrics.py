"""A proxy's metrics for Prometheus."""

from collections.abc import Iterator
from functools import cache

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from backend.kafka.proxy.activity import Activity
from backend.kafka.wire.messages import REQUESTS as MESSAGES

_REQUESTS = Counter("headrace_proxy_requests_total", "Requests from clients.", ["api"])
_LATENCY = Histogram(
    "headrace_proxy_request_seconds",
    "Time from a request's last byte to its answer's first byte.",
    ["api"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
OUT_OF_RACK = Counter("headrace_proxy_out_of_rack_requests_total", "Connections to brokers in other racks.")
PEERS_DOWN = Gauge("headrace_proxy_peers_down", "Other proxies that do not answer.")
CONNECTIONS = Gauge("headrace_proxy_client_connections", "Open client connections.")
REQUEST_BYTES = Gauge("headrace_proxy_request_bytes", "Memory of clients' requests that are not answered yet.")
REFUSED = Counter(
    "headrace_proxy_refused_connections_total",
    "Client connections that the proxy closed, by reason.",
    ["reason"],
)


class TallyCollector(Collector):
    """Exports the tallies, so that nothing has to be counted twice."""

    def __init__(self, activity: Activity) -> None:
        self._activity = activity

    def collect(self) -> Iterator[CounterMetricFamily]:
        clients, brokers = self._activity.clients.all(), self._activity.brokers.all()
        sent = CounterMetricFamily(
            "headrace_proxy_client_bytes", "Bytes of clients' requests and answers.", labels=["direction"]
        )
        sent.add_metric(["from"], sum(tally.bytes_from for tally in clients.values()))
        sent.add_metric(["to"], sum(tally.bytes_to for tally in clients.values()))
        yield sent
        texts = {
            "requests": "Requests sent to each broker.",
            "failures": "Failed connections, and connections lost with requests pending.",
        }
        for name, text in texts.items():
            family = CounterMetricFamily(f"headrace_proxy_broker_{name}", text, labels=["broker"])
            for address, tally in brokers.items():
                family.add_metric([address], getattr(tally, name))
            yield family
        moved = CounterMetricFamily(
            "headrace_proxy_broker_bytes",
            "Bytes sent to and received from each broker.",
            labels=["broker", "direction"],
        )
        for address, tally in brokers.items():
            moved.add_metric([address, "from"], tally.bytes_from)
            moved.add_metric([address, "to"], tally.bytes_to)
        yield moved


@cache
def requests(api_key: int) -> Counter:
    return _REQUESTS.labels(_name(api_key))


@cache
def latency(api_key: int) -> Histogram:
    return _LATENCY.labels(_name(api_key))


def _name(api_key: int) -> str:
    """The API's name as a label. Clients can send any number; unknown ones share one label."""
    message = MESSAGES.get(api_key)
    return message.name.removesuffix("Request") if message is not None else "unknown"
