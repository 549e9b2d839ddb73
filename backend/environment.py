"""Where the other systems are, from environment variables that begin with ``HEADRACE_``."""

from functools import lru_cache

from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from backend.domain.breaker import BreakerPolicy


class Environment(BaseSettings):
    """Addresses and tokens of one process. The defaults are those of the embedded installation."""

    model_config = SettingsConfigDict(env_prefix="HEADRACE_", env_ignore_empty=True, frozen=True)

    kafka_bootstrap_servers: str = "127.0.0.1:9092"
    redis_url: str = "redis://127.0.0.1:6379/0"
    manager_address: str = "127.0.0.1:8090"
    service_token: SecretStr = SecretStr("")
    manager_certificate: str = ""
    """This process's certificate for the manager's gRPC service, a PEM file; with the two that follow, both
    sides prove who they are (mTLS)."""
    manager_key: str = ""
    manager_authority: str = ""
    """The authority that signed the other side's certificate."""
    outbound_allow: str = ""
    """Networks beside the public internet that users' addresses may lead to, as CIDR, separated by commas."""
    metrics_port: int = 0
    """Where this process shows its own metrics to Prometheus; 0 for nowhere."""
    breaker: BreakerPolicy = BreakerPolicy.model_validate({})
    """Default of outputs that set none, as JSON."""


@lru_cache
def environment() -> Environment:
    """This process's environment, read once."""
    return Environment()
