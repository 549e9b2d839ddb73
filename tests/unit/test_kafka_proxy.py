"""The proxy's configuration, which proxy stands for which broker, framing, and SCRAM."""

import struct
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from backend.kafka.proxy.activity import Tallies
from backend.kafka.proxy.config import ConfigError, ProxyConfig, load
from backend.kafka.proxy.handshake import APIS
from backend.kafka.proxy.nodes import Nodes
from backend.kafka.proxy.routes import REFUSED, ROUTES, WITH_SESSIONS
from backend.kafka.proxy.topology import Broker
from backend.kafka.server.listen import HostPort
from backend.kafka.server.scram import ClientExchange, ScramError, user_of
from backend.kafka.wire.api import ApiKey
from backend.kafka.wire.framing import FrameProtocol
from backend.kafka.wire.primitives import MalformedError

PLAIN = {"first_contact_points": ["kafka:9092"], "proxy_nodes": ["a:9092", "b:9092"], "listen": "0.0.0.0:9192"}


def parsed(folder: Path, config: Any) -> ProxyConfig:
    path = folder / "proxy.yaml"
    path.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
    return load(path)


def test_the_seeds_names_and_its_plain_list_are_taken(tmp_path: Path) -> None:
    seeds = {"first_contact_points": ["2.1.1.1:9092"], "shotover_nodes": ["1.1.1.1:9092"], "listen": "0.0.0.0:9092"}
    node = parsed(tmp_path, seeds).local
    assert (str(node.address_for_clients), str(node.address_for_peers), node.broker_id) == ("1.1.1.1:9092",) * 2 + (0,)
    full = {"address_for_clients": "[::1]:9092", "address_for_peers": "b:9093", "rack": "r", "broker_id": 7}
    local = parsed(tmp_path, PLAIN | {"proxy_nodes": [full], "local_shotover_broker_id": 7}).local
    assert str(local.address_for_clients) == "[::1]:9092"
    assert local.rack == "r"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"proxy_nodes": [{"address_for_client": "a:1"}]}, "proxy_nodes.0.address_for_client: Extra inputs"),
        ({"tls": {"clients": {"certificat": "x"}}}, "tls.clients.certificat: Extra inputs"),
        ({"listen": "9192"}, "listen: Value error, Write an address as host:port."),
        ({"first_contact_points": []}, "first_contact_points: List should have at least 1 item"),
        ({"local_broker_id": 5}, "none of the proxy_nodes has the broker_id 5"),
        ({"tls": {"brokers": {"authority": "/nowhere.pem"}}}, "The file /nowhere.pem does not exist."),
        ({"tls": {"brokers": {"certificate": "/etc/hostname"}}}, "Set both certificate and private_key, or neither."),
        ({"unknown": 1}, "unknown: Extra inputs are not permitted"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match="cannot be used") as refused:
        parsed(tmp_path, PLAIN | change)
    assert text in str(refused.value)


@pytest.mark.parametrize("text", ["[", "just text", "", "\x00"])
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        parsed(tmp_path, text)
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "missing.yaml")


def brokers(count: int, racks: int = 0) -> list[Broker]:
    return [
        Broker(number, HostPort(host=f"broker{number}", port=9092), f"rack{number % racks}" if racks else None)
        for number in range(count)
    ]


def nodes(count: int, local: int = 0, racks: int = 0) -> Nodes:
    listed = [
        {"address_for_clients": f"p{n}:1", "address_for_peers": f"p{n}:1", "broker_id": n}
        | ({"rack": f"rack{n % racks}"} if racks else {})
        for n in range(count)
    ]
    return Nodes(ProxyConfig.model_validate(PLAIN | {"proxy_nodes": listed, "local_broker_id": local}))


@given(st.integers(1, 40), st.integers(1, 7), st.integers(0, 4))
def test_proxies_agree_and_share_brokers_evenly(broker_count: int, proxy_count: int, racks: int) -> None:
    assignments = [
        {
            broker: node.broker_id
            for broker, node in nodes(proxy_count, local, racks).assignment(brokers(broker_count, racks)).items()
        }
        for local in range(proxy_count)
    ]
    assert all(other == assignments[0] for other in assignments)
    assert set(assignments[0]) == set(range(broker_count))
    if not racks:
        loads = [list(assignments[0].values()).count(n) for n in range(proxy_count)]
        assert max(loads) <= -(-broker_count // proxy_count)


def test_a_proxy_serves_its_rack_and_others_take_over() -> None:
    proxies = nodes(3, racks=3)
    assigned = proxies.assignment(brokers(6, 3))
    assert {broker: node.rack for broker, node in assigned.items()} == {n: f"rack{n % 3}" for n in range(6)}
    before = {broker: node.broker_id for broker, node in assigned.items()}
    proxies._note(proxies._all[1], is_up=False)
    after = {broker: node.broker_id for broker, node in proxies.assignment(brokers(6, 3)).items()}
    assert 1 not in after.values()
    assert {b: after[b] for b in before if before[b] != 1} == {b: n for b, n in before.items() if n != 1}


def test_every_api_has_one_decision() -> None:
    decided = [*ROUTES, *WITH_SESSIONS, *APIS, *REFUSED]
    assert sorted(decided) == sorted(ApiKey)


def test_tallies_are_bounded_and_keep_those_in_use() -> None:
    tallies = Tallies()
    tallies.of("in use").connections = 1
    for number in range(5000):
        tallies.of(f"client {number}").requests += 1
    kept = tallies.all()
    assert len(kept) == 1000
    assert "in use" in kept
    assert "client 4999" in kept


class Frames(FrameProtocol):
    def __init__(self) -> None:
        super().__init__(1_000_000)
        self.received: list[bytes] = []

    def frame_received(self, frame: bytearray) -> None:
        self.received.append(bytes(frame))

    def malformed(self, reason: str) -> None:
        raise MalformedError(reason)

    def feed(self, data: bytes, cut: int) -> None:
        while data:
            buffer = self.get_buffer(-1)
            part = data[: min(cut, len(buffer))]
            buffer[: len(part)] = part
            self.buffer_updated(len(part))
            data = data[len(part) :]


@given(
    st.lists(st.sampled_from([1, 5, 100, 65_531, 65_532, 65_533, 200_000]), max_size=8),
    st.sampled_from([1, 7, 4096, 65_536]),
)
def test_frames_are_cut_wherever_the_stream_is(sizes: list[int], cut: int) -> None:
    if cut < 100 and sum(sizes) > 10_000:
        return
    sent = [struct.pack(">i", size) + bytes([number]) * size for number, size in enumerate(sizes)]
    frames = Frames()
    frames.feed(b"".join(sent), cut)
    assert frames.received == sent


def test_scram_is_that_of_rfc_7677() -> None:
    exchange = ClientExchange("SCRAM-SHA-256", "user", "pencil")
    exchange._nonce, exchange._first_bare = "rOprNGfwEbeRWgbNEkqO", "n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = exchange.final(challenge)
    assert final.endswith(b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    exchange.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    with pytest.raises(ScramError):
        exchange.verify(b"v=AAAA")
    with pytest.raises(ScramError):
        ClientExchange("SCRAM-SHA-256", "user", "pencil").final(challenge)


def test_the_user_is_read_from_the_first_message() -> None:
    assert user_of(b"n,,n=a=2Cb=3Dc,r=nonce") == "a,b=c"
    assert user_of(b"rubbish") == ""
