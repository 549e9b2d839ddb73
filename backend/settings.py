"""Every setting of Headrace, from environment variables that begin with ``HEADRACE_``."""

from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from backend.domain.breaker import BreakerPolicy


class Settings(BaseSettings):
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
    plugins: str = ""
    """Folder of further components, ``connectors/NAME.py`` and ``transforms/NAME.py``, at the same place for every
    process; it is read by ``backend.domain.registry``."""
    metrics_port: int = 0
    """Where this process shows its own metrics to Prometheus; 0 for nowhere."""
    breaker: BreakerPolicy = BreakerPolicy.model_validate({})
    """Default of outputs that set none, as JSON."""


@lru_cache
def platform_settings() -> Settings:
    """This process's environment, read once."""
    return Settings()


ROOT = Path(__file__).resolve().parents[1]


Grant = Annotated[str, Field(pattern=r"^[a-z0-9-]+:(viewer|operator|editor|admin)$")]
"""A workspace and a role in it."""


class ConsoleSettings(BaseSettings):
    """Set by ``manage.py up`` in the embedded installation, by the operator elsewhere."""

    model_config = SettingsConfigDict(env_prefix="HEADRACE_", env_ignore_empty=True, frozen=True)

    database_url: str = "postgresql://headrace@127.0.0.1:5432/headrace"
    django_secret_key: SecretStr = SecretStr("")
    secret_keys_file: Path = ROOT / "var/secrets/secret-keys.json"
    vault_url: str = ""
    """Vault or OpenBao, where secrets rest instead of in PostgreSQL: ``https://vault.example.com:8200``."""
    vault_mount: str = "secret"
    """Its KV v2 engine."""
    vault_path: str = "headrace"
    """The part of the engine that is Headrace's."""
    vault_token: SecretStr = SecretStr("")
    vault_role_id: str = ""
    """To sign in as an AppRole, instead of with a token."""
    vault_secret_id: SecretStr = SecretStr("")
    allowed_hosts: str = "127.0.0.1,localhost"
    public_url: str = "http://127.0.0.1:8000"
    ingest_url: str = "http://127.0.0.1:8080"
    var: Path = ROOT / "var"
    embedded: bool = False
    """Whether this is the embedded installation, which has demo objects."""
    oidc_issuer: str = ""
    """Keycloak realm that people sign in through: ``https://keycloak.example.com/realms/main``."""
    oidc_client_id: str = "headrace"
    oidc_client_secret: SecretStr = SecretStr("")
    oidc_audience: str = ""
    """What ``aud`` of a bearer token must name; the client id without it."""
    oidc_roles: dict[str, list[Grant]] = {}
    """What the realm's roles and groups may do, as JSON:
    ``{"/sales": ["sales:editor"], "ops": ["sales:operator"]}``."""
    local_login: bool = True
    """Whether local accounts may sign in with a password."""
    schema_registry_url: str = ""
    """A schema registry that speaks Confluent's API, for stream processing: ``https://registry.example.com``."""
    schema_registry_user: str = ""
    schema_registry_password: SecretStr = SecretStr("")
    kafka_proxies: str = ""
    """Operations addresses of the Kafka proxies that the console shows, separated by commas: ``http://10.0.0.5:9193``."""
    mail_url: SecretStr = SecretStr("")
    """Mail server for alerts: ``smtp://user:password@host:587?tls=yes``."""
    mail_from: str = "headrace@localhost"
    metrics_token: SecretStr = SecretStr("")
    """What Prometheus sends as bearer token; without it only the embedded installation shows its metrics."""
    java_home: str = ""
    spark_master: str = "local[8,4]"
    spark_conf: dict[str, str] = {}
    """Further Spark settings, such as an executor's memory and cores, as a JSON object."""
    spark_jars: str = ""
    """Comma-separated paths of Spark's Kafka connector."""
    adapting_batch_seconds: int = Field(default=30, ge=5)
    """How often Spark's real-time query writes down where it is. Each time it reads nothing for some 150 ms; a stop
    under load waits for it, and what came since is moved again after a kill."""
    topic_partitions: int = 2
    topic_replication: int = 1
    topic_retention_hours: int = 168
    attempts_kept_days: int = 14
    dead_letters_kept_days: int = 30
    dead_letters_kept_bytes: int = 10 * 1024**3
