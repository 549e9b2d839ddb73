"""A Kafka cluster as a connection: how clients log in, and what its errors mean."""

import asyncio
import time
from typing import Annotated, Any, Literal

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from pydantic import Field, SecretStr, StringConstraints

from backend.connectors.parts.oauth import OAuth, fetched_token
from backend.connectors.parts.tls import NoTls, Tls, TlsSetting
from backend.domain.capabilities import Connection, DeliveryError
from backend.domain.connector import CheckFailedError
from backend.domain.model import StrictModel
from backend.domain.reasons import Reason
from backend.kafka.client.producer import RECORD_FAULTS, AsyncProducer
from backend.kafka.client.topic_limit import topic_limit
from backend.network.http_client import TlsSettings
from backend.network.outbound import ForbiddenAddressError, outbound_policy

_PATIENCE_SECONDS = 8.0
"""Less than the default time limit of a delivery, so that its error says what librdkafka reported."""
_TRY_SECONDS = 1.0

_FINAL_CODES = RECORD_FAULTS | {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}


Topic = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,249}$")]


class NoLogin(StrictModel):
    """No login, or only the client certificate of the encryption."""

    type: Literal["none"] = "none"


class Sasl(StrictModel):
    """A user name and password."""

    type: Literal["sasl"] = "sasl"
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="SASL mechanism of the login."
    )
    username: str = Field(min_length=1, description="User name.")
    password: SecretStr = Field(description="Password.")


class KafkaConnection(Connection):
    """A Kafka cluster."""

    schema_version = 2

    bootstrap_servers: str = Field(
        pattern=r"^[^\s,:]+:\d+(,[^\s,:]+:\d+)*$",
        description="Brokers to contact first, as host:port, separated by commas.",
        examples=["broker-1:9092,broker-2:9092"],
    )
    security: Annotated[NoLogin | Sasl | OAuth, Field(discriminator="type")] = Field(
        default_factory=NoLogin, description="How Headrace identifies itself."
    )
    tls: TlsSetting = Field(default_factory=NoTls, description="How the connection is encrypted.")

    def hosts(self) -> dict[str, list[str]]:
        brokers = self.bootstrap_servers.split(",")
        hosts = {"bootstrap_servers": [broker.rpartition(":")[0] for broker in brokers]}
        if isinstance(self.security, OAuth):
            hosts["security"] = [self.security.token_url.host or ""]
        return hosts

    @classmethod
    def upgrade(cls, data: dict[str, Any], version: int) -> dict[str, Any]:
        """Version 1 had encryption as a part of the login."""
        security = dict(data.get("security", {"type": "plaintext"}))
        if security["type"] == "plaintext":
            return {**data, "security": {"type": "none"}, "tls": {"type": "none"}}
        encrypted = security.pop("tls", True)
        return {**data, "security": security, "tls": {"type": "tls" if encrypted else "none"}}


class Cluster:
    """A cluster as one client sees it: its configuration for librdkafka, and what that reports in the background."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self.unreachable = False
        """Whether librdkafka has reported that no broker can be reached."""
        self._failure: KafkaError | None = None
        self._token_failure = ""

    def config(self, **more: Any) -> dict[str, Any]:
        """librdkafka's configuration of a client."""
        connection = self._connection
        config: dict[str, Any] = {
            "bootstrap.servers": connection.bootstrap_servers,
            "error_cb": self._report,
            "reconnect.backoff.max.ms": 2000,
        }
        protocol = "PLAINTEXT"
        if isinstance(connection.tls, Tls):
            protocol = "SSL"
            config |= _tls_config(connection.tls)
        match connection.security:
            case Sasl() as sasl:
                protocol = f"SASL_{protocol}"
                config |= {
                    "sasl.mechanism": sasl.mechanism,
                    "sasl.username": sasl.username,
                    "sasl.password": sasl.password.get_secret_value(),
                }
            case OAuth() as oauth:
                protocol = f"SASL_{protocol}"
                config |= {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: self._token(oauth)}
        return config | {"security.protocol": protocol} | more

    def check_bootstrap(self) -> None:
        """librdkafka opens connections itself, so the hosts are checked before it does. Raises
        ForbiddenAddressError."""
        for host in self._connection.hosts()["bootstrap_servers"]:
            outbound_policy().check_host(host)

    async def metadata(self) -> Any:
        """The cluster's metadata, whose brokers' advertised addresses are checked. Raises ForbiddenAddressError and
        KafkaException."""
        await asyncio.to_thread(self.check_bootstrap)
        # A producer's thread serves the callbacks that a login by token needs. This one needs no right to write.
        client = AsyncProducer(self.config(**{"enable.idempotence": False}))
        try:
            metadata = await asyncio.to_thread(self._listed, client)
        finally:
            await client.close(0)
        await asyncio.to_thread(check_brokers, metadata)
        return metadata

    async def most_bytes(self, topic: str) -> int | None:
        """The largest batch of records that the topic takes (``max.message.bytes``), or None when the cluster does not
        tell."""
        try:
            return await asyncio.to_thread(lambda: topic_limit(AdminClient(self.config()), topic))
        except KafkaException:
            return None

    def _listed(self, client: AsyncProducer) -> Any:
        """librdkafka retries until the time is over, also what will not get better."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                metadata = client.list_topics(_TRY_SECONDS)
                self.reached()
                return metadata
            except KafkaException:
                rejected = self._failure is not None and self._failure.code() in _REJECTED
                if rejected or self.unreachable or self._token_failure or time.monotonic() > deadline:
                    raise

    def error(self, error: Exception, *, of_record: bool = False) -> DeliveryError:
        """What a client raised, in the user's terms. ``of_record`` tells that it was writing a record, which may be to
        blame."""
        if isinstance(error, ForbiddenAddressError):
            return DeliveryError(Reason.FORBIDDEN, str(error), retryable=False)
        if not isinstance(error, KafkaException):
            raise error
        cause: KafkaError = error.args[0]
        return DeliveryError(
            _reason(self._behind(cause) or cause),
            f"Kafka: {self.explained(cause)}.",
            retryable=cause.code() not in _FINAL_CODES,
            about_message=of_record and cause.code() in RECORD_FAULTS,
        )

    def explained(self, cause: KafkaError) -> str:
        """The error, or what librdkafka reported as its cause: without a connection all calls just time out."""
        if self._token_failure:
            return self._token_failure
        known = self._behind(cause)
        if known is None:
            return "The brokers do not answer: check the addresses, and whether they expect encryption"
        if known.code() == KafkaError._SSL and _UNTRUSTED in known.str():
            return _UNTRUSTED_TEXT
        return str(known.str()).rstrip(".")

    def _behind(self, error: KafkaError) -> KafkaError | None:
        """What librdkafka reported as the cause of an error that only says that there is no connection, which may be
        nothing; any other error is its own."""
        return self._failure if error.code() in _WITHOUT_CONNECTION else error

    def reached(self) -> None:
        """A broker has answered: what was reported before is over."""
        self.unreachable = False
        self._failure = None

    def _report(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.unreachable = True
        elif self._failure is None or self._failure.code() not in _REJECTED or error.code() in _REJECTED:
            # A broker that is only unreachable does not hide what another one rejects.
            self._failure = error

    def _token(self, oauth: OAuth) -> tuple[str, float]:
        """Called by librdkafka, in a thread of the client's, when it needs a new token.

        librdkafka could fetch tokens itself, but would follow a redirect into the operator's network.
        """
        try:
            tls = self._connection.tls
            settings = tls.tls_settings() if isinstance(tls, Tls) else TlsSettings()
            token = asyncio.run(fetched_token(oauth, settings))
        except DeliveryError as error:
            self._token_failure = str(error).rstrip(".")
            raise
        self._token_failure = ""
        return token.value, token.expires


_REJECTED = {KafkaError._AUTHENTICATION, KafkaError._SSL}
_UNTRUSTED = "certificate verify failed"
_UNTRUSTED_TEXT = (
    "The certificate of a broker is not trusted: it has expired, or is for another host, or the authority that signed "
    "it is not among those that are trusted"
)
"""librdkafka does not tell which, and names settings of its own and packages of operating systems."""
_WITHOUT_CONNECTION = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
}

_REASONS = dict.fromkeys(_WITHOUT_CONNECTION, Reason.CONNECTION) | {
    KafkaError._RESOLVE: Reason.DNS,
    KafkaError._SSL: Reason.TLS,
}


def _reason(error: KafkaError) -> str:
    """Librdkafka's own errors, as opposed to those of brokers, have names that begin with an underscore."""
    return _REASONS.get(error.code()) or f"kafka_{error.name().lower().removeprefix('_')}"


def check_brokers(metadata: Any) -> None:
    """Raises ForbiddenAddressError for an advertised address that may not be connected to."""
    for broker in metadata.brokers.values():
        outbound_policy().check_host(broker.host)


def _tls_config(tls: Tls) -> dict[str, Any]:
    settings = {
        "ssl.ca.pem": tls.ca,
        "ssl.certificate.pem": tls.certificate,
        "ssl.key.pem": tls.key and tls.key.get_secret_value(),
        "ssl.key.password": tls.key_password and tls.key_password.get_secret_value(),
    }
    return {name: value for name, value in settings.items() if value}


async def check_cluster(connection: KafkaConnection) -> str:
    """Fetches the cluster's metadata, which needs a working login. Raises CheckFailedError."""
    cluster = Cluster(connection)
    try:
        metadata = await cluster.metadata()
    except ForbiddenAddressError as error:
        raise CheckFailedError(str(error), field="bootstrap_servers") from None
    except KafkaException as error:
        cause = cluster.explained(error.args[0])
        raise CheckFailedError(f"No connection to the cluster: {cause}.", field=_field_at_fault(cause)) from None
    return f"Connected. Brokers: {len(metadata.brokers)}, visible topics: {len(metadata.topics)}."


def _field_at_fault(cause: str) -> str:
    lower = cause.lower()
    if any(word in lower for word in ("authentication", "sasl", "token")):
        return "security"
    return "tls" if any(word in lower for word in ("ssl", "certificate")) else "bootstrap_servers"
