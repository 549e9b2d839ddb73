from dataclasses import dataclass

from backend.kafka_proxy.activity import Activity
from backend.kafka_proxy.config import ProxyConfig
from backend.kafka_proxy.nodes import Nodes
from backend.kafka_proxy.sasl import Tokens
from backend.kafka_proxy.topology import Topology


@dataclass(frozen=True)
class Context:
    """What all connections of one proxy share."""

    config: ProxyConfig
    topology: Topology
    nodes: Nodes
    activity: Activity
    tokens: Tokens | None
