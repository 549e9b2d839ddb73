from dataclasses import dataclass

from backend.kafka.proxy.activity import Activity
from backend.kafka.proxy.config import ProxyConfig
from backend.kafka.proxy.nodes import Nodes
from backend.kafka.proxy.sasl import Tokens
from backend.kafka.proxy.topology import Topology


@dataclass(frozen=True)
class Context:
    """The state that all connections of one proxy share."""

    config: ProxyConfig
    topology: Topology
    nodes: Nodes
    activity: Activity
    tokens: Tokens | None
