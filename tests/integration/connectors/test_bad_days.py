"""What every connector says on the bad days that all systems have, in each of its uses.

A connector is here by its cases: its connection is the one to nobody that they name (``Reaching.unreachable``), with
another address. Its options are the examples of their fields. What cannot be made of them is named in this file.
"""

import asyncio
import re
import threading
import time
import uuid
from collections.abc import Awaitable, Iterator
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest

from backend.api_calls.api import System
from backend.connectors.delta_sharing import protocol as delta_sharing
from backend.delivery.client import DeliveryClient
from backend.domain import json
from backend.domain.capabilities import (
    CAPABILITIES,
    Call,
    Collect,
    Deliver,
    DeliverBatch,
    DeliveryError,
    Export,
    ReadBatch,
    ReadStream,
    Register,
    Verify,
)
from backend.domain.connector import CheckFailedError, Connector, RuntimeConnector, check_connection
from backend.domain.pipeline import OutputConfig, RuntimeOutput
from backend.domain.reasons import Reason
from backend.domain.transforms.call import Call as CallStep
from backend.domain.uses import bind
from backend.network.threads import DaemonThreads
from tests.contract.test_connector_suites import case_classes, own
from tests.integration.connectors.bad_servers import BadServers, bad_servers
from tests.integration.connectors.suites import Reaching, exporter, input_reader, opened
from tests.integration.connectors.suites.calls import METADATA
from tests.integration.connectors.suites.common import hides_secrets, message
from tests.planted import instances
from tests.waiting import PATIENCE

WITHOUT_HOST = {
    "collection": "A collection is in a folder or store of the installation.",
    "local_files": "Its files are in a folder of the server.",
    "webhook": "It is sent requests, and sends none.",
}
ELSEWHERE = {"jdbc": "What is said is its drivers', which need Java: jdbc/test_reading.py."}
WITHOUT_CERTIFICATES = {
    "gcs": "Only the emulator, which has no encryption, has an address that can be entered.",
    "pubsub": "Only the emulator, which has no encryption, has an address that can be entered.",
    "sftp": "SSH has keys of hosts, which test_sftp.py changes.",
}
WITHOUT_CALLS = {Verify: "It waits for nobody.", Collect: "Messages are handed over to a stage; nobody is called."}

DOCUMENT = {
    "id": 1,
    "tenant": "t",
    "country": "br",
    "deleted": False,
    "order": {"id": 1, "country": "br", "revision": 1},
    "customer": {"id": 1},
    "_id": 1,
}
"""Has the fields that the examples of options name."""
SHORTENED: dict[tuple[str, type], dict[str, Any]] = {("n8n", ReadBatch): {"timeout_seconds": 30}}
"""Limits of time that are options."""
SHORTENED_CALLS = {delta_sharing: 30.0}
"""Modules whose limit of a call is longer than a minute and is no option."""
OPTIONS: dict[tuple[str, type], dict[str, Any]] = {
    ("http", DeliverBatch): {"batch_lines": "body"},
    ("mongodb", Deliver): {"database": "shop", "collection": "orders"},
    ("mongodb", DeliverBatch): {"database": "shop", "collection": "orders"},
    ("sql", DeliverBatch): {"table": "public.orders", "write": "insert"},
}
"""Where the examples of single fields make no valid whole."""
REGISTERED: dict[str, dict[str, Any]] = {
    "n8n": {"workflow": "1"},
    "postgres_cdc": {"slot": "s", "publication": "p", "snapshot": "m", "begin": "now"},
}
"""What was made for an input before it is read."""

UNKNOWN_HOST = "no-such-host.invalid"
MOST_SECONDS = 75.0
"""The longest time limit of the product is a minute, within which an input has to open."""
REGISTER_SECONDS = 30.0
MOST_PAUSE_SECONDS = 5.0
WAIT_SECONDS = 300.0
AT_ONCE = 64


@dataclass(frozen=True)
class Day:
    name: str
    says: str
    """What its sentence must match."""


DAYS = (
    Day("unknown_host", r"resolv|not known|unknown host|no host .* is known"),
    Day("refused", r"refused|cannot be reached|could not connect|no connection|does not answer"),
    Day("silent", r"within|timed? ?out|(does|did|do) not answer|no answer|nothing was received"),
    Day("endless", r"."),
    Day("expired", r"certificate"),
)
NOT_FOR_PEOPLE = re.compile(
    r"Traceback|object at 0x|\[Errno|\b[A-Za-z_.]*(Error|Exception)\b|\bNone\b|unexpected(ly)? (fail|\()|_ssl\.c|\(\)"
)


@dataclass(frozen=True)
class Case:
    connector: type[Connector]
    cases: type[Reaching]
    """Has the connection."""
    use: type | None
    """A capability; None for the connection test."""
    day: Day

    @property
    def id(self) -> str:
        use = "check" if self.use is None else self.use.name  # type: ignore[attr-defined]
        return f"{self.connector.type}-{self.cases.__name__}-{use}-{self.day.name}"


def connections_of(connector: type[Connector]) -> dict[str, type[Reaching]]:
    """Those of its cases that can be had without a server, each once, with the class that has it."""
    found: dict[str, type[Reaching]] = {}
    for cases in case_classes(connector):
        if issubclass(cases, Reaching):
            try:
                connection = cases().unreachable()
            except AttributeError:  # made by a fixture
                continue
            found.setdefault(_shape(connection), cases)
    return found


def _shape(connection: dict[str, Any]) -> str:
    """What is the same of two connections with the same fields, whose port, user or key was chosen freely."""
    names = sorted(connection)
    return json.dumps([names, connection.get("dialect"), connection.get("access", {}).get("type")]).decode()


def cases() -> Iterator[Case]:
    for connector in own:
        if connector.type in {**WITHOUT_HOST, **ELSEWHERE}:
            continue
        kinds = [kind for kind in CAPABILITIES if connector.capability(kind) and kind not in WITHOUT_CALLS]
        for of in connections_of(connector).values():
            for day in DAYS:
                if day.name == "expired" and connector.type in WITHOUT_CERTIFICATES:
                    continue
                yield from (Case(connector, of, use, day) for use in (None, *kinds))


def protocol_of(connector: str, connection: dict[str, Any]) -> str:
    """By which a bad server chooses its words; "" for HTTP."""
    if connector == "postgres_cdc":
        return "postgresql"
    return str(connection.get("dialect", connector))


def moved(value: Any, host: str, port: int) -> Any:
    """The same connection to another address."""
    if isinstance(value, dict):
        parts = {name: moved(part, host, port) for name, part in value.items()}
        return parts | ({"port": port} if "port" in parts else {})
    if isinstance(value, list):
        return [moved(part, host, port) for part in value]
    if isinstance(value, str):
        return re.sub(r"127\.0\.0\.1(:\d+)?", lambda found: f"{host}:{port}" if found[1] else host, value)
    return value


def encrypted(connector: type[Connector], connection: dict[str, Any], authority: str) -> dict[str, Any]:
    """The same connection with encryption, by which that authority is trusted where one can be entered."""
    whole = json.loads(json.dumps(connection).replace(b"http://", b"https://"))
    for part in (whole, *(value for value in whole.values() if isinstance(value, dict))):
        if part is not whole and "127.0.0.1" not in json.dumps(part).decode():
            continue
        for added in ({"tls": {"type": "tls", "ca": authority}}, {"tls": "verify"}, {"ca": authority}):
            before = dict(part)
            part.update(added)
            try:
                connector.connection_model.model_validate(whole)
            except ValueError:
                part.clear()
                part.update(before)
    return whole  # type: ignore[no-any-return]


def connection_of(case: Case, servers: BadServers) -> dict[str, Any]:
    connection = case.cases().unreachable()
    protocol = protocol_of(case.connector.type, connection)
    match case.day.name:
        case "unknown_host":
            return moved(connection, UNKNOWN_HOST, 9)  # type: ignore[no-any-return]
        case "refused":
            return moved(connection, "127.0.0.1", servers.refusing)  # type: ignore[no-any-return]
        case "silent":
            return moved(connection, "127.0.0.1", servers.silent)  # type: ignore[no-any-return]
        case "endless":
            port = servers.endless.get(protocol, servers.endless[""])
            return moved(connection, "127.0.0.1", port)  # type: ignore[no-any-return]
    port = servers.expired.get(protocol, servers.expired[""])
    there = moved(connection, "127.0.0.1", port)
    return encrypted(case.connector, there, servers.authority.certificate.read_text())


def options_of(connector: type[Connector], kind: type) -> dict[str, Any]:
    if (connector.type, kind) in OPTIONS:
        return OPTIONS[connector.type, kind]
    made = next(instances(connector.capability(kind).options_model), None)  # type: ignore[union-attr]
    assert made, (
        f"The examples of the options make no valid whole: add ({connector.type!r}, {kind.__name__}) to OPTIONS."
    )
    return {**made.data, **SHORTENED.get((connector.type, kind), {})}


@dataclass
class Outcome:
    error: Exception | None = None
    seconds: float = 0.0
    pause: float = 0.0
    """The longest time for which the event loop, which many uses share in the product, stood still."""


class NoErrorError(Exception):
    """Nothing was wrong, where something had to be."""


async def use_it(case: Case, connection: dict[str, Any]) -> None:
    """Until it fails, as the product uses it."""
    type_name = case.connector.type
    if case.use is None:
        await check_connection(case.connector, case.connector.connection_model.model_validate(connection))
        return
    options = options_of(case.connector, case.use)
    runtime = RuntimeConnector(type=type_name, connection=connection)
    if case.use in (Deliver, DeliverBatch):
        batch = {"messages": 10} if case.use is DeliverBatch else None
        fields = {"name": "out", "connector": str(uuid.uuid4()), "options": options, "batch": batch}
        client = DeliveryClient(RuntimeOutput(connector=runtime, config=OutputConfig.model_validate(fields)))
        try:
            await client.deliver_one(message(json.dumps(DOCUMENT)))
        finally:
            await client.close()
    elif case.use in (ReadBatch, ReadStream):
        reader = input_reader(type_name, connection, options, REGISTERED.get(type_name))
        async with asyncio.timeout(MOST_SECONDS), opened(reader):
            batches = reader.stream() if case.use is ReadStream else reader.read(None)
            async with aclosing(batches):
                await anext(batches, None)
    elif case.use is Call:
        step = CallStep.model_validate({"connector": str(uuid.uuid4()), "options": options, "to": "answer"})
        system = System(step, runtime)
        try:
            await system.ask(system.request(DOCUMENT, METADATA))
        finally:
            await system.close()
    elif case.use is Export:
        async with asyncio.timeout(MOST_SECONDS), opened(exporter(type_name, connection, options)) as export:
            await export.begin("a.csv")
    elif case.use is Register:
        register = bind(runtime, options, lambda connector: connector.capability(Register), Register.purpose)
        async with asyncio.timeout(REGISTER_SECONDS), opened(register):
            await register.register(f"headrace_{uuid.uuid4().hex}", {})
    else:
        raise AssertionError(f"Say here how {case.use.__name__} is used.")


async def watched(work: Awaitable[None]) -> Outcome:
    outcome = Outcome()

    async def beat() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.1)
            outcome.pause = max(outcome.pause, time.monotonic() - began - 0.1)

    beating = asyncio.create_task(beat())
    began = time.monotonic()
    try:
        await work
    except Exception as error:
        outcome.error = error
    finally:
        outcome.seconds = time.monotonic() - began
        beating.cancel()
    return outcome


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BadServers]:
    with bad_servers(tmp_path_factory.mktemp("certificates")) as servers:
        yield servers


@pytest.fixture(scope="module")
def outcomes(bad: BadServers, request: pytest.FixtureRequest) -> Iterator[dict[str, "Future[Outcome]"]]:
    """Of all cases that were asked for, which run side by side, each on an event loop and with threads of its own."""
    for package in {package for connector in own for package in connector.requires}:
        import_module(package)  # which would take all of them long, if they did it at the same time
    asked = {item.callspec.params.get("case") for item in request.session.items if hasattr(item, "callspec")}
    turn = threading.Semaphore(AT_ONCE)
    threads = DaemonThreads()

    def run(case: Case) -> Outcome:
        with turn:
            return asyncio.run(watched(use_it(case, connection_of(case, bad))))

    with pytest.MonkeyPatch.context() as patch:
        for module, seconds in SHORTENED_CALLS.items():
            patch.setattr(module, "_CALL_SECONDS", seconds)
        yield {case.id: threads.submit(run, case) for case in asked if isinstance(case, Case)}


EVERY = list(cases())


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.id)
def test_it_says_what_is_wrong_in_time(case: Case, outcomes: "dict[str, Future[Outcome]]", bad: BadServers) -> None:
    outcome = outcomes[case.id].result(WAIT_SECONDS * PATIENCE)
    error, connection = outcome.error, connection_of(case, bad)
    assert isinstance(error, CheckFailedError if case.use is None else DeliveryError), repr(error)
    text = str(error)
    if isinstance(error, DeliveryError):
        assert error.reason != Reason.INTERNAL, text
        assert not error.about_message, text
        assert error.retryable or case.day.name == "expired", text
        assert hides_secrets(case.connector.type, connection, error.response)
    else:
        assert str(error.field).partition(".")[0] in case.connector.connection_model.model_fields
    assert hides_secrets(case.connector.type, connection, text)
    assert text.endswith("."), text
    assert not NOT_FOR_PEOPLE.search(text), text
    assert re.search(case.day.says, text, re.IGNORECASE), text
    assert outcome.seconds < MOST_SECONDS * PATIENCE
    assert outcome.pause < MOST_PAUSE_SECONDS * PATIENCE, "Its event loop, which is that of many outputs, stood still."


@pytest.mark.parametrize("connector", own, ids=lambda connector: connector.type)
def test_every_connector_has_bad_days_or_a_reason_to_have_none(connector: type[Connector], bad: BadServers) -> None:
    of_it = [case for case in EVERY if case.connector is connector]
    if connector.type in WITHOUT_HOST:
        assert not connector.connection_model.model_validate(connector.example).hosts()
        return
    if connector.type in ELSEWHERE:
        return
    assert of_it, (
        f"{connector.type} needs a class of cases with Reaching whose unreachable() needs no fixture, or a reason in "
        "WITHOUT_HOST."
    )
    for one in of_it:
        if one.day.name != "expired":
            continue
        plain = moved(one.cases().unreachable(), "127.0.0.1", 1)
        assert encrypted(connector, plain, bad.authority.certificate.read_text()) != plain, (
            f"It is not known how connections of {connector.type} are encrypted: say so in encrypted(), or give a "
            "reason in WITHOUT_CERTIFICATES."
        )
    for kind in {one.use for one in of_it if one.use is not None}:
        options_of(connector, kind)
