"""Before and after the login at a proxy, in front of a broker that consists of a few answers."""

import asyncio
import contextlib
import struct
import time
from collections.abc import AsyncIterator
from typing import Any, cast

from backend.kafka.proxy import metrics
from backend.kafka.proxy.activity import Tally
from backend.kafka.proxy.broker_connection import BrokerConnection
from backend.kafka.proxy.config import ProxyConfig
from backend.kafka.proxy.sasl import Login, SendRequest
from backend.kafka.proxy.server import Proxy
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey, ErrorCode
from backend.kafka.wire.framing import SMALL, FrameProtocol
from backend.kafka.wire.primitives import MalformedError
from backend.kafka.wire.structs import Struct
from tests.ports import free_ports
from tests.stream_client import StreamClient
from tests.waiting import LIMIT_SECONDS, wait_until_async

VERSIONS = {
    ApiKey.API_VERSIONS: 0,
    ApiKey.SASL_HANDSHAKE: 1,
    ApiKey.SASL_AUTHENTICATE: 1,
    ApiKey.METADATA: 9,
    ApiKey.DESCRIBE_CLUSTER: 0,
}


class Broker(FrameProtocol):
    """One connection. ``lifetime_ms`` is None if clients need no login. ``is_late``: instead of answering it closes the
    connection once the session is over."""

    def __init__(self, port: int, lifetime_ms: int | None, *, is_late: bool = False) -> None:
        super().__init__(100 * 1024 * 1024)
        self._port = port
        self._lifetime = lifetime_ms
        self._is_late = is_late
        self._may = lifetime_ms is None

    def malformed(self, error: MalformedError) -> None:
        pass

    def frame_received(self, frame: bytearray) -> None:
        header = codec.read_request_header(frame)
        answer = codec.response_type(header.api_key)()
        if header.api_key == ApiKey.API_VERSIONS:
            kind = answer.type_of("api_keys")
            answer.api_keys = [kind(api_key=key, min_version=0, max_version=v) for key, v in VERSIONS.items()]
        elif header.api_key == ApiKey.SASL_HANDSHAKE:
            if self._lifetime is None:
                answer.error_code = ErrorCode.ILLEGAL_SASL_STATE
            else:
                answer.mechanisms = ["PLAIN"]
        elif header.api_key == ApiKey.SASL_AUTHENTICATE:
            request = codec.read_request(header.api_key, header.version, frame, header.body)
            if request.auth_bytes != b"\0alice\0secret":
                answer.error_code = ErrorCode.SASL_AUTHENTICATION_FAILED
            else:
                self._may = True
                answer.session_lifetime_ms = self._lifetime or 0
        elif not self._may:
            self.transport.abort()
            return
        elif self._is_late and self._lifetime is not None:
            asyncio.get_running_loop().call_later(self._lifetime / 1000, self.transport.abort)
            return
        elif header.api_key == ApiKey.METADATA:
            answer.brokers = [answer.type_of("brokers")(node_id=1, host="127.0.0.1", port=self._port)]
        self.transport.writelines(codec.write_response(header.api_key, header.version, header.correlation_id, answer))


class Front:
    """A proxy in front of that broker."""

    def __init__(self, proxy: Proxy, port: int) -> None:
        self.proxy, self._port = proxy, port
        self._before = {reason: self._count(reason) for reason in ("login", "session", "broker", "size", "limit")}
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> "Client":
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(writer)
        return Client(reader, writer)

    def refused(self, reason: str) -> float:
        return self._count(reason) - self._before[reason]

    @staticmethod
    def _count(reason: str) -> float:
        return float(metrics.REFUSED.labels(reason)._value.get())

    async def close(self) -> None:
        await self.proxy.listener.drain(0)
        for writer in self._writers:
            writer.transport.abort()


class Client(StreamClient):
    async def ask(self, api_key: ApiKey, **fields: Any) -> Struct:
        """Raises IncompleteReadError or ConnectionError when the connection is closed instead."""
        version = VERSIONS[api_key]
        body = codec.request_type(api_key)(**fields)
        self.writer.writelines(cast(list[bytes], codec.write_request(api_key, version, 1, "test", body)))
        async with asyncio.timeout(LIMIT_SECONDS):
            size = await self.reader.readexactly(4)
            frame = size + await self.reader.readexactly(struct.unpack(">i", size)[0])
        return codec.read_response(api_key, version, frame)

    async def sign_in(self, password: str = "secret") -> Struct:
        assert (await self.ask(ApiKey.SASL_HANDSHAKE, mechanism="PLAIN")).error_code == ErrorCode.NONE
        return await self.ask(ApiKey.SASL_AUTHENTICATE, auth_bytes=b"\0alice\0" + password.encode())

    async def is_served(self) -> bool:
        try:
            await self.ask(ApiKey.METADATA, topics=[])
        except (ConnectionError, asyncio.IncompleteReadError):
            return False
        return True

    async def announce(self, size: int) -> None:
        self.writer.write(struct.pack(">i", size) + bytes(10))
        await self.writer.drain()


@contextlib.asynccontextmanager
async def front(lifetime_ms: int | None, *, is_late: bool = False, **settings: Any) -> AsyncIterator[Front]:
    broker, port = free_ports(2)
    server = await asyncio.get_running_loop().create_server(
        lambda: Broker(broker, lifetime_ms, is_late=is_late), "127.0.0.1", broker
    )
    document = {"first_contact_points": [f"127.0.0.1:{broker}"], "proxy_nodes": [f"127.0.0.1:{port}"]}
    config = ProxyConfig.model_validate(document | {"listen": f"127.0.0.1:{port}"} | settings)
    proxy = Proxy(config)
    await proxy.listener.start(config.listen, None)
    made = Front(proxy, port)
    try:
        yield made
    finally:
        await made.close()
        server.close()


async def test_neighbours_10_a_session_ends_with_its_lifetime() -> None:
    async with front(4000) as proxy:
        client, idle, renewing = [await proxy.connect() for _ in range(3)]
        for each in (client, idle, renewing):
            assert 0 < (await each.sign_in()).session_lifetime_ms <= 4000
            assert await each.is_served()
        await asyncio.sleep(1)
        await renewing.sign_in()

        async def is_over() -> bool:
            return not await client.is_served()

        await wait_until_async(is_over)
        assert proxy.refused("session") == 1
        # One that was idle meanwhile may still sign in again, as at a broker.
        await asyncio.sleep(0.5)
        await renewing.sign_in()
        assert await renewing.is_served()
        await idle.sign_in()
        assert await idle.is_served()
        assert proxy.refused("session") == 1


async def test_neighbours_10_a_request_in_which_the_session_ends_counts_as_that() -> None:
    async with front(1000, is_late=True) as proxy:
        client = await proxy.connect()
        await client.sign_in()
        assert not await client.is_served()
        assert proxy.refused("session") == 1
        assert proxy.refused("broker") == 0


async def test_why_a_broker_refuses_a_handshake_reaches_the_client() -> None:
    async with front(None) as proxy:
        client = await proxy.connect()
        refusal = await client.ask(ApiKey.SASL_HANDSHAKE, mechanism="PLAIN")
        assert refusal.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.is_served()


class CountedLogin(Login):
    def __init__(self) -> None:
        self.times: list[float] = []

    async def run(self, send: SendRequest) -> float:
        self.times.append(time.monotonic())
        return 0.0


async def test_neighbours_10_a_connection_signs_in_at_most_once_a_second() -> None:
    async with front(None) as proxy:
        login = CountedLogin()
        config = proxy.proxy.context.config
        connection = BrokerConnection(
            config.first_contact_points[0],
            config,
            tally=Tally(),
            tls=None,
            login=login,
            on_closed=lambda *_: None,
            on_writable=lambda _: None,
        )
        request = codec.request_type(ApiKey.METADATA)()
        await connection.request(ApiKey.METADATA, VERSIONS[ApiKey.METADATA], request)
        connection.log_in_again(login)
        await connection.request(ApiKey.METADATA, VERSIONS[ApiKey.METADATA], request)
        connection.close()
        first, second = login.times
        assert second - first > 1


async def test_neighbours_10_a_session_without_a_lifetime_does_not_end() -> None:
    async with front(0) as proxy:
        client = await proxy.connect()
        await client.sign_in()
        await asyncio.sleep(0.5)
        assert await client.is_served()


async def test_neighbours_10_a_stranger_may_send_little_and_not_for_long() -> None:
    async with front(0, login_timeout_ms=1500) as proxy:
        user = await proxy.connect()
        await user.sign_in()
        strangers = [await proxy.connect() for _ in range(3)]
        for stranger in strangers:
            assert (await stranger.ask(ApiKey.API_VERSIONS)).api_keys
        assert (await strangers[0].sign_in("wrong")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        await strangers[1].announce(SMALL + 1)
        assert await strangers[1].is_closed()
        assert proxy.refused("size") == 1
        assert await strangers[0].is_closed()
        assert await strangers[2].is_closed()
        assert proxy.refused("login") == 2
        assert await user.is_served()


async def test_neighbours_10_where_no_login_is_demanded_an_answer_is_enough() -> None:
    async with front(None, login_timeout_ms=1500) as proxy:
        silent, quiet, first = [await proxy.connect() for _ in range(3)]
        await first.announce(SMALL + 1)
        assert await first.is_closed()  # nothing is known of the cluster yet
        assert (await quiet.ask(ApiKey.API_VERSIONS)).api_keys
        assert await (await proxy.connect()).is_served()
        large = await proxy.connect()
        await large.announce(1_000_000)
        await asyncio.sleep(0.2)
        assert proxy.refused("size") == 1
        assert await silent.is_closed()
        assert await quiet.is_served()


async def test_neighbours_10_connections_without_a_login_lock_nobody_out() -> None:
    async with front(0, connection_limit=10) as proxy:
        strangers = [await proxy.connect() for _ in range(30)]
        for number in range(9):
            user = await proxy.connect()
            await user.sign_in()
            assert await user.is_served(), number
        assert proxy.refused("limit") == 29
        assert sum([not stranger.reader.at_eof() for stranger in strangers]) <= 1
