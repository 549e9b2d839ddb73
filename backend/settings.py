"""All settings of Headrace, read from environment variables that begin with ``HEADRACE_``.

``docs/operations/settings.md`` is generated from these classes; their docstrings and those of their fields are Markdown
with links from that page.
"""

import difflib
import os
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, SecretStr, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from backend.domain.breaker import BreakerPolicy

ROOT = Path(__file__).resolve().parents[1]


_PREFIX = "HEADRACE_"
_OF_KUBERNETES = re.compile(r"(^|_)(SERVICE_(HOST|PORT(_.*)?)|PORT(_\d+_(TCP|UDP)(_.*)?)?)$")
"""The variables that Kubernetes sets in every container for each service, whatever the service's name."""


Grant = Annotated[str, Field(pattern=r"^[a-z0-9-]+:(viewer|operator|editor|admin)$")]
"""A workspace and a role in it."""


class UnknownSettingError(ValueError):
    """An environment variable that looks like a setting of Headrace and is none; the message says what to do."""


class _Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_ignore_empty=True,
        frozen=True,
    )

    def __init__(self, **values: Any) -> None:
        """Raises ValidationError, and FileNotFoundError when the folder of secrets does not exist."""
        folder = os.environ.get(f"{_PREFIX}SECRETS_DIR") or None
        if folder is not None and not Path(folder).is_dir():
            raise FileNotFoundError(f"HEADRACE_SECRETS_DIR: there is no folder {folder}.")
        super().__init__(_secrets_dir=folder, **values)


class KafkaSettings(_Settings):
    """Headrace's own Kafka cluster, and how every client [connects](installation.md#kafka) to it."""

    model_config = SettingsConfigDict(env_prefix=f"{_PREFIX}KAFKA_")

    bootstrap_servers: str = "127.0.0.1:9092"
    """Kafka's brokers. `manage.py up` starts no Kafka if this is set."""
    tls: bool = False
    """Whether connections are encrypted. The brokers' certificates and host names are then verified."""
    ca: str = ""
    """The authority that signed the brokers' certificates, a PEM file; without it the machine's authorities."""
    certificate: str = ""
    """The client's certificate chain and its unencrypted PKCS #8 key, one PEM file, for mutual TLS."""
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = ""
    """`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`."""
    username: str = ""
    """User name, or the client id of OAUTHBEARER."""
    password: SecretStr = SecretStr("")
    """Password, or the client secret of OAUTHBEARER."""
    oauth_token_url: str = ""
    """Where OAUTHBEARER gets its tokens."""
    oauth_scope: str = ""
    """The scope that OAUTHBEARER asks for."""

    @model_validator(mode="after")
    def _check_login(self) -> Self:
        if self.sasl_mechanism and not (self.username and self.password.get_secret_value()):
            raise ValueError("HEADRACE_KAFKA_SASL_MECHANISM needs HEADRACE_KAFKA_USERNAME and HEADRACE_KAFKA_PASSWORD.")
        if self.sasl_mechanism == "OAUTHBEARER" and not self.oauth_token_url:
            raise ValueError("OAUTHBEARER needs HEADRACE_KAFKA_OAUTH_TOKEN_URL.")
        if not self.tls and (self.ca or self.certificate):
            raise ValueError("HEADRACE_KAFKA_CA and HEADRACE_KAFKA_CERTIFICATE need HEADRACE_KAFKA_TLS=true.")
        return self

    @property
    def security_protocol(self) -> str:
        """Kafka's name of how a client connects."""
        encryption = "SSL" if self.tls else "PLAINTEXT"
        return f"SASL_{encryption}" if self.sasl_mechanism else encryption

    def client(self) -> dict[str, Any]:
        """How a client of librdkafka connects."""
        config: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": self.security_protocol,
        }
        if self.ca:
            config["ssl.ca.location"] = self.ca
        if self.certificate:
            config |= {"ssl.certificate.location": self.certificate, "ssl.key.location": self.certificate}
        if self.sasl_mechanism:
            config["sasl.mechanism"] = self.sasl_mechanism
        secret = self.password.get_secret_value()
        if self.sasl_mechanism == "OAUTHBEARER":
            config |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": self.username,
                "sasl.oauthbearer.client.secret": secret,
                "sasl.oauthbearer.token.endpoint.url": self.oauth_token_url,
            }
            if self.oauth_scope:
                config["sasl.oauthbearer.scope"] = self.oauth_scope
        elif self.sasl_mechanism:
            config |= {"sasl.username": self.username, "sasl.password": secret}
        return config


class GatewaySettings(_Settings):
    """One node of the [read gateway](../guides/read-gateway.md), from which Kafka consumers read collections."""

    model_config = SettingsConfigDict(env_prefix=f"{_PREFIX}GATEWAY_")

    node_id: int = Field(1, ge=0, le=2**31 - 1)
    """The broker id that clients see; every node needs its own."""
    listen: str = "127.0.0.1:9292"
    """Where the node listens."""
    advertised: str = ""
    """Where clients reach the node, `host:port`; without it where it listens."""
    http_listen: str = "127.0.0.1:8081"
    """Address of the schema registry, `/health/live`, `/health/ready` and `/metrics`."""
    certificate: str = ""
    """The certificate, a PEM file; together with the key it enables TLS on both addresses."""
    private_key: str = ""
    """The certificate's key, a PEM file."""
    compression: Literal["none", "gzip", "zstd"] = "zstd"
    """How records are sent. With `zstd`, clients that are not based on librdkafka or Java get them uncompressed."""
    cache_bytes: int = Field(256 * 1024 * 1024, ge=0)
    """Memory for encoded records that are read often."""
    cache_disk_bytes: int = Field(4 * 1024**3, ge=0)
    """Disk, in temporary files below `TMPDIR`, for encoded records that were read once; 0 for none."""
    bytes_per_second: int = Field(0, ge=0)
    """How much each API key may read per second from this node; 0 for no limit."""
    connection_limit: int = Field(2000, ge=1)
    """Connections of clients."""

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if bool(self.certificate) != bool(self.private_key):
            raise ValueError("Set both HEADRACE_GATEWAY_CERTIFICATE and HEADRACE_GATEWAY_PRIVATE_KEY, or neither.")
        return self


class RegistrySettings(_Settings):
    """The schema registry of [stream processing](../guides/stream-processing.md)."""

    schema_registry_url: str = ""
    """A Confluent-compatible schema registry: `https://registry.example.com`."""
    schema_registry_user: str = ""
    """User name for its Basic authentication."""
    schema_registry_password: SecretStr = SecretStr("")
    """The password."""


class JavaSettings(_Settings):
    """Java, for Spark and for the drivers of [JDBC](../connectors/jdbc.md)."""

    java_home: str = ""
    """Folder of Java 17 or newer; without it `JAVA_HOME`, or the `java` on the path."""


class Settings(RegistrySettings, JavaSettings):
    """Read by every process. The defaults suit the embedded installation."""

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    secrets_dir: str = ""
    """Folder of files from which settings are read that have no variable, such as passwords: each is named like its
    variable in lower case, `headrace_service_token`."""
    redis_url: str = "redis://127.0.0.1:6379/0"
    """[Redis or Valkey](installation.md#redis): `redis://`, or `rediss://` with TLS; with `?sentinel=NAME` its hosts
    are Sentinels."""
    redis_password: SecretStr = SecretStr("")
    """The password of Redis, and of the Sentinels, unless the address has one."""
    manager_address: str = "127.0.0.1:8090"
    """The manager's gRPC service."""
    service_token: SecretStr = SecretStr("")
    """The token that the data plane sends to the manager."""
    manager_certificate: str = ""
    """This process's certificate for the manager's gRPC service, a PEM file. Together with the key and the authority
    it enables [mutual TLS](installation.md#manager-and-data-plane)."""
    manager_key: str = ""
    """The key of this certificate, a PEM file."""
    manager_authority: str = ""
    """The authority that signed the peer's certificate, a PEM file."""
    outbound_allow: str = ""
    """Networks that connectors may reach in addition to the
    [public internet](identity-and-secrets.md#outbound-addresses): CIDR blocks, separated by commas."""
    files_root: str = ""
    """Folder below which the connector of local files may read and write, at the same path for every process. Without
    it there are no local files."""
    jdbc_drivers: str = ""
    """Folder of the jar files of [JDBC drivers](../guides/sql.md#other-databases), at the same path for every process.
    Without it there is no JDBC."""
    plugins: str = ""
    """Folder of [components](../guides/connectors.md#components-of-your-own) and [stages](../guides/stages.md) of your
    own, `connectors/NAME.py`, `transforms/NAME.py`, and `stages/NAME.py` with `jobs/NAME.py`, at the same path for
    every process."""
    metrics_port: int = 0
    """First of the ports on which processes serve their own [metrics](../guides/failures.md#metrics) to Prometheus, one
    for each kind of process; 0 disables it."""
    staging_url: str = str(ROOT / "var/staging")
    """Where messages wait for their [files](../guides/exports.md#staging): a folder that all executors share, or a URL
    that PyArrow opens, such as `s3://bucket/staging`, or a database of MongoDB, `mongodb://…/DATABASE`."""
    collections_url: str = str(ROOT / "var/collections")
    """Where [collections](../guides/collections.md#storage) are stored: a folder that all executors and the console
    share, or a URL such as `s3://bucket/collections`."""
    lane_memory_bytes: int = Field(2 * 1024**3, ge=1024**3)
    """Memory that a task of the stages `adapting_transformer`, `adapting_slow` and `filtering` may allocate, with the
    stacks of its threads. A message that needs more becomes a
    [dead letter](../guides/failures.md#messages-that-end-their-worker)."""
    stage_idle_seconds: int = Field(600, ge=1)
    """How long a stage that [nothing needs](installation.md#stages-on-demand) any more goes on before it rests."""
    breaker: BreakerPolicy = BreakerPolicy.model_validate({})
    """[Circuit breaker](../guides/failures.md#circuit-breakers) of outputs that configure none, as JSON."""


@lru_cache
def platform_settings() -> Settings:
    """The settings of this process, read once. Raises UnknownSettingError."""
    check_names(os.environ)
    return Settings()


def environment_of(settings: Settings) -> dict[str, str]:
    """The variables that give a process on another machine the same settings, whatever its own environment has."""
    variables = {
        f"{section.model_config['env_prefix']}{name}".upper(): _text(value)
        for section in (settings, settings.kafka)
        for name, value in section
        if value is not settings.kafka
    }
    return variables | {f"{_PREFIX}SECRETS_DIR": ""}


def _text(value: Any) -> str:
    """As pydantic reads it from a variable."""
    match value:
        case SecretStr():
            return value.get_secret_value()
        case bool():
            return str(value).lower()
        case BaseModel():
            return value.model_dump_json()
    return str(value)


class SparkSettings(JavaSettings):
    """The Spark application that runs the stages."""

    spark_master: str = "local"
    """The [cluster](installation.md#spark). With `local` tasks run on the driver's machine, as many at a time as the
    stages can use; `local[16,4]` sets how many, and after how many failures a task is given up."""
    spark_conf: dict[str, str] = {}
    """Further Spark settings, such as an executor's memory and cores, as a JSON object."""
    spark_jars: str = ""
    """Folder of the jars of Spark's Kafka connector, or their paths, separated by commas."""
    spark_class_archive: str = ""
    """Archive of Java classes with which a driver starts in about half of the time; without such a file it starts as
    usual. `up` makes one."""
    spark_python: str = ""
    """Python on the cluster's workers, such as `python3.12`, of the driver's version. With it, the executors get the
    project and its packages from the driver, and need neither; without it, both are at the same paths there."""
    spark_checkpoints: str = ""
    """Folder or URL, such as `s3a://bucket/checkpoints`, of Spark's checkpoints, which the driver reaches on every host
    that may start it; without it a folder in `HEADRACE_VAR`."""
    adapting_batch_seconds: int = Field(default=30, ge=5)
    """Interval, in seconds, at which Spark's real-time query [checkpoints](installation.md#spark) its position. Each
    checkpoint pauses reading for about 150 ms; stopping under load waits for it, and messages since the last one are
    reprocessed after a kill."""


class RetentionSettings(_Settings):
    """Headrace's own topics, and how long data is kept."""

    topic_partitions: int = 2
    """Partitions of new topics. `manage.py prepare` names topics that have fewer."""
    topic_replication: int = 1
    """Replicas of new topics. `manage.py prepare` names topics that have fewer."""
    topic_min_insync_replicas: int = Field(default=0, ge=0)
    """Replicas that must have a message before it counts as accepted, such as 2 of 3; 0 for the cluster's default."""
    topic_retention_hours: int = 168
    """Retention of messages in Kafka; applied to existing topics at the next start."""
    attempts_kept_days: int = 14
    """Retention of the log of attempts."""
    dead_letters_kept_days: int = 30
    """Retention of dead letters' bodies; their rows stay as long again."""
    dead_letters_kept_bytes: int = 10 * 1024**3
    """Bytes of dead letters' bodies, for all workspaces together."""
    closed_dead_letters_kept_days: int = 14
    """Retention of dead letters that were delivered or discarded, at least as long as messages in Kafka."""
    consumer_groups_kept_days: int = Field(default=30, ge=1)
    """How long the [read gateway](../guides/read-gateway.md) keeps the offsets of a consumer group without members,
    after the last change."""
    exports_kept_days: int = 90
    """How long what is known about a file that was stored or aborted is shown; the file itself stays in its store."""
    aborted_exports_kept_days: int = 7
    """How long the staged messages of an aborted export can still be stored by a retry."""


class EmbeddedSettings(_Settings):
    """The embedded installation, which `manage.py up` starts. It sets further settings by itself."""

    var: Path = ROOT / "var"
    """Folder for all state."""
    kafka_proxy_config: str = ""
    """Configuration of a [Kafka proxy](../guides/kafka-proxy.md) to start as well."""
    start_limit_seconds: float = Field(600.0, gt=0)
    """How long `manage.py up` waits for a process that lives and is not ready yet. One that has ended is reported at
    once."""
    port_offset: int = 0
    """Added to every port; set by `manage.py up --port-offset`."""
    embedded: bool = False
    """Whether this is the embedded installation, which creates demo objects; set by `manage.py up`."""


class ConsoleSettings(SparkSettings, RetentionSettings, EmbeddedSettings, RegistrySettings):
    """Read by the console, the manager and the workers: set by `manage.py up` in the embedded installation, otherwise
    by the operator."""

    database_url: str = "postgresql://headrace@127.0.0.1:5432/headrace"
    """[PostgreSQL](installation.md#postgresql) 14 or later, in the syntax of libpq: several hosts, and parameters such
    as `sslmode`, are possible. A statement that takes more than a minute fails as if PostgreSQL were unavailable,
    except in migrations, retention and reconciliation. A connection pooler in between has to keep sessions and to pass
    the parameter `options` on."""
    database_password: SecretStr = SecretStr("")
    """The password of the database's user, unless the address has one."""
    django_secret_key: SecretStr = SecretStr("")
    """A long random text; required outside the embedded installation."""
    admin_password: SecretStr = SecretStr("")
    """Password of `admin`, the first account: `manage.py prepare` creates it, with a workspace, while there is none."""
    secret_keys_file: Path = ROOT / "var/secrets/secret-keys.json"
    """The keys that encrypt [secrets](identity-and-secrets.md#secrets)."""
    vault_url: str = ""
    """[Vault or OpenBao](identity-and-secrets.md#secrets), which stores secrets instead of PostgreSQL:
    `https://vault.example.com:8200`."""
    vault_mount: str = "secret"
    """Mount path of its KV v2 engine."""
    vault_path: str = "headrace"
    """Path within the engine below which Headrace stores its secrets."""
    vault_token: SecretStr = SecretStr("")
    """Token to sign in with."""
    vault_role_id: str = ""
    """AppRole to sign in with, instead of a token."""
    vault_secret_id: SecretStr = SecretStr("")
    """The AppRole's secret id."""
    allowed_hosts: str = "127.0.0.1,localhost"
    """Host names of the console beside the one in its address, separated by commas."""
    public_url: str = "http://127.0.0.1:8000"
    """Address of the console."""
    ingest_url: str = "http://127.0.0.1:8080"
    """Address of the HTTP input."""
    oidc_issuer: str = ""
    """Keycloak realm for [signing in](identity-and-secrets.md#signing-in): `https://keycloak.example.com/realms/main`."""
    oidc_client_id: str = "headrace"
    """The client's id in the realm."""
    oidc_client_secret: SecretStr = SecretStr("")
    """The client's secret."""
    oidc_audience: str = ""
    """Audience that a bearer token's `aud` must contain; by default the client id."""
    oidc_roles: dict[str, list[Grant]] = {}
    """Workspace roles of the realm's roles and groups, as JSON:
    `{"/sales": ["sales:editor"], "ops": ["sales:operator"]}`."""
    local_login: bool = True
    """Whether local accounts may sign in with a password."""
    kafka_proxies: str = ""
    """Operations addresses of the [Kafka proxies](../guides/kafka-proxy.md) to show in the console, separated by
    commas: `http://10.0.0.5:9193`."""
    sql_queries: int = Field(default=50, ge=1)
    """Queries of [Connect SQL](../guides/connect-sql.md) in each workspace that run until they are terminated."""
    sql_readings: int = Field(default=10, ge=1)
    """Queries of Connect SQL in each workspace whose rows are read at the same time."""
    mail_url: SecretStr = SecretStr("")
    """Mail server for alerts: `smtp://user:password@host:587?tls=yes`."""
    mail_from: str = "headrace@localhost"
    """Sender of alerts."""
    metrics_token: SecretStr = SecretStr("")
    """Bearer token for `/metrics`; without it only the embedded installation serves metrics."""


SECTIONS: dict[str, type[_Settings]] = {
    "Every process": Settings,
    "Kafka": KafkaSettings,
    "Schema registry": RegistrySettings,
    "Console and workers": ConsoleSettings,
    "Read gateway": GatewaySettings,
    "Spark": SparkSettings,
    "Java": JavaSettings,
    "Topics and retention": RetentionSettings,
    "Embedded installation": EmbeddedSettings,
}
"""All settings, by what they are about. A section has the fields that its class adds."""


def variables(section: type[_Settings]) -> dict[str, FieldInfo]:
    """The section's fields by their variable."""
    prefix = section.model_config["env_prefix"]
    inherited = {name for base in section.__bases__ for name in getattr(base, "model_fields", ())}
    own = {name: field for name, field in section.model_fields.items() if name not in inherited}
    return {f"{prefix}{name}".upper(): field for name, field in own.items() if field.annotation is not KafkaSettings}


def check_names(environment: Iterable[str]) -> None:
    """Raises UnknownSettingError for a variable that begins like a setting and is none, such as a misspelt one."""
    known = [name.removeprefix(_PREFIX) for section in SECTIONS.values() for name in variables(section)]
    for variable in environment:
        name = variable.removeprefix(_PREFIX)
        if variable.startswith(_PREFIX) and name not in known and not _OF_KUBERNETES.search(name):
            alike = difflib.get_close_matches(name, known, 1)
            hint = (
                f"; did you mean {_PREFIX}{alike[0]}?" if alike else ". docs/operations/settings.md lists all of them."
            )
            raise UnknownSettingError(f"{variable} is no setting of Headrace{hint}")
