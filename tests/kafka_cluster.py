"""A Kafka cluster of several brokers, each in its own rack, with listeners for every kind of authentication."""

import base64
import re
import signal
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from backend.runtime import class_archives
from tests.certificates import Authority
from tests.ports import free_ports
from tests.waiting import LIMIT_SECONDS, start_of, wait_for_processes

USERS = {"alice": "alice-password", "bob": "bob-password"}
"""Users with their passwords; they can use PLAIN, and SCRAM once they are registered."""

_PROPERTIES = """\
process.roles=broker,controller
node.id={id}
broker.rack=rack{id}
controller.quorum.voters={voters}
listeners={listeners},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={listeners}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,\
SASL_SSL:SASL_SSL
log.dirs={folder}/data
auto.create.topics.enable=false
default.replication.factor={copies}
min.insync.replicas=1
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor={copies}
offsets.topic.num.partitions=6
transaction.state.log.replication.factor={copies}
transaction.state.log.min.isr={in_sync}
transaction.state.log.num.partitions=6
share.coordinator.state.topic.replication.factor={copies}
share.coordinator.state.topic.min.isr={in_sync}
share.coordinator.state.topic.num.partitions=6
broker.session.timeout.ms=10000
broker.heartbeat.interval.ms=500
replica.lag.time.max.ms=10000
replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector
connections.max.idle.ms={idle_ms}
num.network.threads=2
num.io.threads=4
background.threads=2
log.cleaner.dedupe.buffer.size=8388608
log.segment.bytes=104857600
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:proxy
allow.everyone.if.no.acl.found=false
delegation.token.secret.key=a-secret-of-the-tests
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
{users};
listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="nobody";
listener.name.sasl_ssl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
{users};
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location={folder}/keystore.pem
ssl.truststore.type=PEM
ssl.truststore.location={authority}
ssl.client.auth={client_auth}
listener.name.sasl_ssl.ssl.client.auth={client_auth}
ssl.principal.mapping.rules=RULE:^CN=(.*)$/$1/
"""

_FEATURES = ["--feature", "share.version=1"]
"""Enables share groups, which are off by default in a new cluster of this version."""


@dataclass
class BrokerProcess:
    id: int
    folder: Path
    ports: dict[str, int]
    command: list[str]
    process: subprocess.Popen[bytes] | None = None

    def address(self, listener: str = "PLAINTEXT") -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, cwd="/")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
            self.process.wait(LIMIT_SECONDS)
            self.process = None


@dataclass
class KafkaCluster:
    """A cluster on this machine. ``start`` returns once every broker has joined."""

    folder: Path
    jars: Path
    java_home: Path
    size: int = 3
    client_auth: str = "none"
    idle_ms: int = 600_000
    brokers: list[BrokerProcess] = field(default_factory=list)

    def start(self) -> None:
        self._prepare()
        for broker in self.brokers:
            broker.start()
        self.wait_until_joined()

    def stop(self) -> None:
        for broker in self.brokers:
            broker.stop(signal.SIGKILL)

    def bootstrap(self, listener: str = "PLAINTEXT") -> str:
        return ",".join(broker.address(listener) for broker in self.brokers)

    def wait_until_joined(self) -> None:
        """Blocks until every broker takes part."""
        starts = [
            start_of(f"broker {broker.id}", self._all_joined, broker.process, broker.folder / "log")
            for broker in self.brokers
        ]
        wait_for_processes(starts)

    def _all_joined(self) -> bool:
        try:
            admin = AdminClient({"bootstrap.servers": self.bootstrap()})
            return len(admin.list_topics(timeout=5).brokers) == self.size
        except KafkaException:
            return False

    def controller(self) -> BrokerProcess:
        """The one whose controller leads."""
        quorum = ("--bootstrap-server", self.bootstrap(), "describe", "--status")
        done = self.tool("org.apache.kafka.tools.MetadataQuorumCommand", *quorum)
        leader = re.search(r"^LeaderId:\s+(\d+)", done.stdout, re.MULTILINE)
        assert leader is not None, done.stdout + done.stderr
        return next(broker for broker in self.brokers if broker.id == int(leader[1]))

    def allow_all(self, *users: str) -> None:
        """Registers the users for SCRAM and gives them every right."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap()})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):  # one of a user in a request
            changes = [
                UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), USERS[user].encode())
                for user in users
            ]
            for changed in admin.alter_user_scram_credentials(changes).values():
                changed.result(LIMIT_SECONDS)
        resources = [
            (ResourceType.TOPIC, "*"),
            (ResourceType.GROUP, "*"),
            (ResourceType.TRANSACTIONAL_ID, "*"),
            (ResourceType.BROKER, "kafka-cluster"),
        ]
        rights = [
            AclBinding(
                kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", AclOperation.ALL, AclPermissionType.ALLOW
            )
            for kind, name in resources
            for user in users
        ]
        for created in admin.create_acls(rights).values():
            created.result(LIMIT_SECONDS)

    def tool(
        self, main: str, *arguments: str, input_file: Path = Path("/dev/null"), seconds: float = 3 * LIMIT_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Runs one of Kafka's command-line tools."""
        with input_file.open("rb") as stdin:
            return subprocess.run(
                [*self._java("256m"), main, *arguments],
                stdin=stdin,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )

    def _java(self, memory: str) -> list[str]:
        options = [f"-Xmx{memory}", "-XX:ReservedCodeCacheSize=64m"]
        options += class_archives.options(class_archives.archive(self.jars, self.java_home, class_archives.KAFKA))
        return [str(self.java_home / "bin/java"), *options, "-cp", f"{self.jars.resolve()}/kafka/*"]

    def _prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.authority = Authority(self.folder)
        listeners = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
        ports = iter(free_ports(self.size * (len(listeners) + 1)))
        controllers = [next(ports) for _ in range(self.size)]
        voters = ",".join(f"{n + 1}@127.0.0.1:{port}" for n, port in enumerate(controllers))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        for number, controller in enumerate(controllers, 1):
            folder = self.folder / f"broker{number}"
            folder.mkdir()
            certificate, key = self.authority.issue(f"broker{number}")
            (folder / "keystore.pem").write_text(key.read_text() + certificate.read_text())
            ports_of_broker = {name: next(ports) for name in listeners}
            (folder / "server.properties").write_text(
                _PROPERTIES.format(
                    id=number,
                    voters=voters,
                    listeners=",".join(f"{name}://127.0.0.1:{port}" for name, port in ports_of_broker.items()),
                    controller=controller,
                    folder=folder,
                    users=" ".join(f'user_{name}="{password}"' for name, password in USERS.items()),
                    authority=self.authority.certificate,
                    client_auth=self.client_auth,
                    idle_ms=self.idle_ms,
                    copies=min(3, self.size),
                    in_sync=min(2, self.size),
                )
            )
            properties = str(folder / "server.properties")
            result = self.tool(
                "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", *_FEATURES, "-c", properties
            )
            assert result.returncode == 0, result.stderr
            self.brokers.append(
                BrokerProcess(number, folder, ports_of_broker, [*self._java("320m"), "kafka.Kafka", properties])
            )
