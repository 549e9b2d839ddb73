"""What one system holds arrives in another field by field, for every input with every output."""

import inspect
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from itertools import product
from typing import Any, TypeVar

import pytest

from backend.domain.message import new_message_id
from tests.e2e import matrix
from tests.e2e.matrix.ends import RECORDS, Inlet, Outlet, Record, canonical
from tests.infra import Server
from tests.installation import Installation
from tests.jdbc import jdbc_drivers  # noqa: F401
from tests.mariadb import mariadb_server  # noqa: F401
from tests.seaweedfs import seaweedfs  # noqa: F401
from tests.waiting import wait_until

EndT = TypeVar("EndT", Inlet, Outlet)
Pair = tuple[type[Inlet], type[Outlet]]
_SIDE_BY_SIDE = 32
"""Pairs of the full matrix that run at the same time."""
_ARRIVAL_SECONDS = 180


@pytest.fixture(scope="module")
def started() -> Iterator[dict[Any, Server]]:
    """Servers that no fixture starts, by what makes them."""
    servers: dict[Any, Server] = {}
    yield servers
    for server in reversed(servers.values()):
        server.stop()


def ends_of(kind: type[EndT], marker: str = "") -> list[type[EndT]]:
    modules = [import_module(f"{matrix.__name__}.{module.name}") for module in pkgutil.iter_modules(matrix.__path__)]
    classes = {one for module in modules for _, one in inspect.getmembers(module, inspect.isclass)}
    chosen = [one for one in classes if issubclass(one, kind) and not inspect.isabstract(one)]
    chosen = [one for one in chosen if one.marker == marker and not one.__name__.startswith("_")]
    return sorted(chosen, key=lambda one: one.__name__)


def held_by(inlet: type[Inlet], outlet: type[Outlet]) -> list[Record]:
    return [record for record in RECORDS if inlet.holds(record) and outlet.holds(record)]


def covering_pairs() -> list[Pair]:
    """Every input and every output at least once."""
    inlets, outlets = ends_of(Inlet), ends_of(Outlet)
    return [
        (inlets[number % len(inlets)], outlets[number % len(outlets)])
        for number in range(max(len(inlets), len(outlets)))
    ]


def all_pairs() -> list[Pair]:
    return list(product(ends_of(Inlet), ends_of(Outlet)))


def batched(pairs: Sequence[Pair], size: int) -> Iterator[Sequence[Pair]]:
    for first in range(0, len(pairs), size):
        yield pairs[first : first + size]


def test_records_arrive_field_by_field(
    installation: Installation, request: pytest.FixtureRequest, started: dict[Any, Server]
) -> None:
    _check(installation, request, started, covering_pairs())


@pytest.mark.long
def test_records_of_every_input_arrive_field_by_field_at_every_output(
    installation: Installation, request: pytest.FixtureRequest, started: dict[Any, Server]
) -> None:
    for pairs in batched(all_pairs(), _SIDE_BY_SIDE):
        _check(installation, request, started, pairs)


@pytest.mark.n8n
def test_records_of_n8n_arrive_field_by_field_at_every_output(
    installation: Installation, request: pytest.FixtureRequest, started: dict[Any, Server]
) -> None:
    _check(installation, request, started, list(product(ends_of(Inlet, "n8n"), ends_of(Outlet))))


def _check(
    installation: Installation,
    request: pytest.FixtureRequest,
    started: dict[Any, Server],
    pairs: Sequence[Pair],
) -> None:
    """All pairs at the same time; a pipeline for each."""
    for end in {end for pair in pairs for end in pair}:
        for fixture in end.fixtures:
            request.getfixturevalue(fixture)
        for make in end.servers:
            if make not in started:
                started[make] = make()
                started[make].start()
    with ExitStack() as open_ends:
        running = []
        for inlet_class, outlet_class in pairs:
            inlet, outlet = inlet_class(), outlet_class()
            open_ends.callback(inlet.close)
            open_ends.callback(outlet.close)
            records = held_by(inlet_class, outlet_class)
            if inlet.exists_before:
                inlet.write(records)
            pipeline = _published(installation, inlet, outlet)
            open_ends.callback(_remove, installation, pipeline)
            if not inlet.exists_before:
                inlet.write(records)
            running.append((inlet, outlet, pipeline))
        for inlet, outlet, pipeline in running:
            expected = [canonical(record) for record in held_by(type(inlet), type(outlet))]
            name = f"{type(inlet).__name__} to {type(outlet).__name__}"
            _await(outlet, len(expected), lambda name=name, at=pipeline: f"{name}: {_state(installation, at)}")  # type: ignore[misc]
            assert _received(outlet) == expected, name


def _await(outlet: Outlet, count: int, explain: Callable[[], str]) -> None:
    wait_until(
        lambda: len(_received(outlet)) >= count,
        _ARRIVAL_SECONDS,
        0.5,
        lambda: f"{[record['id'] for record in _received(outlet)]} arrived. {explain()}",
    )


def _state(installation: Installation, pipeline: str) -> str:
    """What the console shows of a pipeline that does not deliver."""
    paths = (
        f"pipelines/{pipeline}/input-state/",
        f"pipelines/{pipeline}/outputs/",
        f"attempts/?pipeline={pipeline}",
        f"dead-letters/?pipeline={pipeline}",
    )
    return "\n".join(f"{path}: {installation.text(path)[:3000]}" for path in paths)


def _received(outlet: Outlet) -> list[Record]:
    """By id; what was delivered twice counts once, if it is the same."""
    records: list[Record] = []
    for record in sorted(map(canonical, outlet.read()), key=lambda record: record["id"]):
        if record not in records:
            records.append(record)
    return records


def _published(installation: Installation, inlet: Inlet, outlet: Outlet) -> str:
    connector = _connector(installation, outlet)
    output = {"name": "out", "connector": connector, "options": outlet.options, **outlet.output}
    source = {"type": "connector", "connector": _connector(installation, inlet), "options": inlet.options}
    config = {"input": source, "transforms": inlet.transforms, "outputs": [output]}
    pipeline = str(installation.create("pipelines/", {"name": new_message_id(), "config": config})["id"])
    installation.create(f"pipelines/{pipeline}/publish/", {})
    return pipeline


def _remove(installation: Installation, pipeline: str) -> None:
    """What would be read and delivered would otherwise be tried for as long as other tests run."""
    installation.api("POST", f"pipelines/{pipeline}/pause/", {})
    installation.api("DELETE", f"pipelines/{pipeline}/")


def _connector(installation: Installation, end: Inlet | Outlet) -> str:
    named = {"name": new_message_id(), "type": end.type, "connection": end.connection}
    return str(installation.create("connectors/", named)["id"])
