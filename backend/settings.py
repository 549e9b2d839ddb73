"""All settings of Headrace, read from environment variables that begin with ``HEADRACE_``."""

from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from backend.domain.breaker import BreakerPolicy


class Settings(BaseSettings):
    """The settings that every process reads. The defaults suit the embedded installation."""

    model_config = SettingsConfigDict(env_prefix="HEADRACE_", env_ignore_empty=True, frozen=True)

    kafka_bootstrap_servers: str = "127.0.0.1:9092"
    redis_url: str = "redis://127.0.0.1:6379/0"
    manager_address: str = "127.0.0.1:8090"
    service_token: SecretStr = SecretStr("")
    manager_certificate: str = ""
    """This process's certificate for the manager's gRPC service, a PEM file. Together with the key and the authority
    it enables mutual TLS."""
    manager_key: str = ""
    manager_authority: str = ""
    """The authority that signed the peer's certificate, a PEM file."""
    outbound_allow: str = ""
    """Networks that connectors may reach in addition to the public internet: CIDR blocks, separated by commas."""
    plugins: str = ""
    """Folder of additional components, ``connectors/NAME.py`` and ``transforms/NAME.py``, at the same path for every
    process; it is read by ``backend.domain.registry``."""
    metrics_port: int = 0
    """Port on which this process serves its own metrics to Prometheus; 0 disables it."""
    breaker: BreakerPolicy = BreakerPolicy.model_validate({})
    """Circuit breaker of outputs that configure none, as JSON."""


@lru_cache
def platform_settings() -> Settings:
    """The settings of this process, read once."""
    return Settings()


ROOT = Path(__file__).resolve().parents[1]


Grant = Annotated[str, Field(pattern=r"^[a-z0-9-]+:(viewer|operator|editor|admin)$")]
"""A workspace and a role in it."""


class ConsoleSettings(BaseSettings):
    """The settings of the console and its workers: set by ``manage.py up`` in the embedded installation, otherwise by
    the operator."""

    model_config = SettingsConfigDict(env_prefix="HEADRACE_", env_ignore_empty=True, frozen=True)

    database_url: str = "postgresql://headrace@127.0.0.1:5432/headrace"
    django_secret_key: SecretStr = SecretStr("")
    secret_keys_file: Path = ROOT / "var/secrets/secret-keys.json"
    vault_url: str = ""
    """Vault or OpenBao, which stores secrets instead of PostgreSQL: ``https://vault.example.com:8200``."""
    vault_mount: str = "secret"
    """Mount path of its KV v2 engine."""
    vault_path: str = "headrace"
    """Path within the engine below which Headrace stores its secrets."""
    vault_token: SecretStr = SecretStr("")
    vault_role_id: str = ""
    """AppRole to sign in with, instead of a token."""
    vault_secret_id: SecretStr = SecretStr("")
    allowed_hosts: str = "127.0.0.1,localhost"
    public_url: str = "http://127.0.0.1:8000"
    ingest_url: str = "http://127.0.0.1:8080"
    var: Path = ROOT / "var"
    embedded: bool = False
    """Whether this is the embedded installation, which creates demo objects."""
    oidc_issuer: str = ""
    """Keycloak realm for signing in: ``https://keycloak.example.com/realms/main``."""
    oidc_client_id: str = "headrace"
    oidc_client_secret: SecretStr = SecretStr("")
    oidc_audience: str = ""
    """Audience that a bearer token's ``aud`` must contain; by default the client id."""
    oidc_roles: dict[str, list[Grant]] = {}
    """Workspace roles of the realm's roles and groups, as JSON:
    ``{"/sales": ["sales:editor"], "ops": ["sales:operator"]}``."""
    local_login: bool = True
    """Whether local accounts may sign in with a password."""
    schema_registry_url: str = ""
    """A Confluent-compatible schema registry, for stream processing: ``https://registry.example.com``."""
    schema_registry_user: str = ""
    schema_registry_password: SecretStr = SecretStr("")
    kafka_proxies: str = ""
    """Operations addresses of the Kafka proxies to show in the console, separated by commas: ``http://10.0.0.5:9193``."""
    mail_url: SecretStr = SecretStr("")
    """Mail server for alerts: ``smtp://user:password@host:587?tls=yes``."""
    mail_from: str = "headrace@localhost"
    metrics_token: SecretStr = SecretStr("")
    """Bearer token for Prometheus; without it only the embedded installation serves its metrics."""
    java_home: str = ""
    spark_master: str = "local[8,4]"
    spark_conf: dict[str, str] = {}
    """Further Spark settings, such as an executor's memory and cores, as a JSON object."""
    spark_jars: str = ""
    """Paths of Spark's Kafka connector, separated by commas."""
    adapting_batch_seconds: int = Field(default=30, ge=5)
    """Interval, in seconds, at which Spark's real-time query checkpoints its position. Each checkpoint pauses reading
    for about 150 ms; stopping under load waits for it, and messages since the last one are reprocessed after a kill."""
    topic_partitions: int = 2
    topic_replication: int = 1
    topic_retention_hours: int = 168
    attempts_kept_days: int = 14
    dead_letters_kept_days: int = 30
    dead_letters_kept_bytes: int = 10 * 1024**3
