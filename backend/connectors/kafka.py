import asyncio
import contextlib
from typing import Annotated, Any, Literal

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from pydantic import Field, SecretStr

from backend.domain.capabilities import Connection, Deliver, DeliveryError, Options, Receipt
from backend.domain.connector import CheckFailedError, Connector, connectors
from backend.domain.message import MESSAGE_ID, Message
from backend.domain.model import StrictModel
from backend.domain.reasons import Reason
from backend.kafka.client.producer import AsyncProducer
from backend.network.outbound import ForbiddenAddressError, outbound_policy

_METADATA_SECONDS = 10.0


class Plaintext(StrictModel):
    """No encryption and no login."""

    type: Literal["plaintext"] = "plaintext"


class Sasl(StrictModel):
    """A user name and password."""

    type: Literal["sasl"] = "sasl"
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="SASL mechanism of the login."
    )
    username: str = Field(min_length=1, description="User name.")
    password: SecretStr = Field(description="Password.")
    tls: bool = Field(True, description="Encrypt the connection.")


class KafkaConnection(Connection):
    """A Kafka cluster."""

    bootstrap_servers: str = Field(
        pattern=r"^[^\s,:]+:\d+(,[^\s,:]+:\d+)*$",
        description="Brokers to contact first, as host:port, separated by commas.",
        examples=["broker-1:9092,broker-2:9092"],
    )
    security: Annotated[Plaintext | Sasl, Field(discriminator="type")] = Field(
        default_factory=Plaintext, description="How Headrace identifies itself."
    )

    def hosts(self) -> dict[str, list[str]]:
        brokers = self.bootstrap_servers.split(",")
        return {"bootstrap_servers": [broker.rpartition(":")[0] for broker in brokers]}


class KafkaOptions(Options):
    """One delivery to a Kafka topic."""

    topic: str = Field(
        pattern=r"^[A-Za-z0-9._-]{1,249}$", description="Topic to write to; it must exist.", examples=["orders"]
    )


def _client_config(connection: KafkaConnection) -> dict[str, Any]:
    config: dict[str, Any] = {"bootstrap.servers": connection.bootstrap_servers}
    if isinstance(connection.security, Sasl):
        config |= {
            "security.protocol": "SASL_SSL" if connection.security.tls else "SASL_PLAINTEXT",
            "sasl.mechanism": connection.security.mechanism,
            "sasl.username": connection.security.username,
            "sasl.password": connection.security.password.get_secret_value(),
        }
    return config


def _checked_metadata(connection: KafkaConnection, **config: Any) -> Any:
    """The cluster's metadata. librdkafka opens connections itself, so the bootstrap hosts are checked before it does,
    and the brokers' advertised addresses afterwards. Raises ForbiddenAddressError and KafkaException."""
    policy = outbound_policy()
    for host in connection.hosts()["bootstrap_servers"]:
        policy.check_host(host)
    metadata = AdminClient(_client_config(connection) | config).list_topics(timeout=_METADATA_SECONDS)
    for broker in metadata.brokers.values():
        policy.check_host(broker.host)
    return metadata


class KafkaDeliver(Deliver[KafkaConnection, KafkaOptions]):
    """An idempotent producer with acknowledgement by all in-sync replicas."""

    options_model = KafkaOptions
    _producer: AsyncProducer | None = None

    async def open(self) -> None:
        try:
            # The first delivery reports a cluster that does not answer.
            with contextlib.suppress(KafkaException):
                await asyncio.to_thread(_checked_metadata, self.connection)
        except ForbiddenAddressError as error:
            raise DeliveryError(Reason.FORBIDDEN, str(error), retryable=False) from None
        self._producer = AsyncProducer(
            {
                **_client_config(self.connection),
                "linger.ms": 2,
                # A missing topic is reported before an attempt's default time limit ends.
                "topic.metadata.propagation.max.ms": 3000,
            }
        )

    def target(self) -> str:
        return f"topic {self.options.topic} at {self.connection.bootstrap_servers}"

    async def deliver(self, message: Message) -> Receipt:
        assert self._producer is not None
        try:
            record = await self._producer.send(
                self.options.topic,
                key=message.key,
                value=message.body,
                headers=[(MESSAGE_ID, message.id.encode()), ("content-type", message.content_type.encode())],
            )
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            raise DeliveryError(
                f"kafka_{cause.name().lower()}",
                f"Kafka did not accept the message: {cause.str()}.",
                retryable=cause.code() not in _FINAL_CODES,
            ) from None
        return Receipt(status=f"{record.topic()}[{record.partition()}]@{record.offset()}")

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()


_FINAL_CODES = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.INVALID_RECORD,
    KafkaError._INVALID_ARG,
}


@connectors.register
class KafkaCluster(Connector):
    """Writes each message to a Kafka topic."""

    type = "kafka"
    title = "Kafka cluster"
    connection_model = KafkaConnection
    capabilities = (KafkaDeliver,)
    example = {
        "bootstrap_servers": "broker-1:9092",
        "security": {"type": "sasl", "mechanism": "SCRAM-SHA-512", "username": "headrace", "password": "s3cret"},
    }

    @staticmethod
    async def check(connection: KafkaConnection) -> str:
        """Fetches the cluster's metadata, which needs a working login."""
        errors: list[str] = []
        try:
            metadata = await asyncio.to_thread(
                _checked_metadata, connection, error_cb=lambda error: errors.append(error.str())
            )
        except ForbiddenAddressError as error:
            raise CheckFailedError(str(error), field="bootstrap_servers") from None
        except KafkaException as error:
            cause = errors[0] if errors else error.args[0].str()
            field = "security" if "uthentication" in cause else "bootstrap_servers"
            raise CheckFailedError(f"No connection to the cluster: {cause}.", field=field) from None
        return f"Connected to {len(metadata.brokers)} broker(s); {len(metadata.topics)} topics are visible."
