"""What one system holds arrives in another field by field, for every input with every output."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain

import pytest

from backend.domain.message import new_message_id
from tests.e2e.matrix.all_ends import Pair, all_pairs, covering_pairs
from tests.e2e.matrix.ends import RECORDS, Inlet, Outlet, Record, canonical
from tests.e2e.matrix.running import start_servers
from tests.installation import Installation
from tests.jdbc import jdbc_drivers  # noqa: F401
from tests.mariadb import mariadb_server  # noqa: F401
from tests.seaweedfs import seaweedfs  # noqa: F401
from tests.waiting import wait_until

_SIDE_BY_SIDE = 32
"""Pairs of the full matrix that run at the same time."""
_ARRIVAL_SECONDS = 180
_KILLS = 5
_COPIES = 20
_SMALL = [record for record in RECORDS if len(record.get("text", "")) < 1000]
MANY = [record | {"id": len(RECORDS) * copy + record["id"]} for copy in range(_COPIES) for record in _SMALL]


def batched(pairs: Sequence[Pair], size: int) -> Iterator[Sequence[Pair]]:
    for first in range(0, len(pairs), size):
        yield pairs[first : first + size]


def test_records_arrive_field_by_field(installation: Installation, request: pytest.FixtureRequest) -> None:
    assert not _failures(installation, request, covering_pairs())


@pytest.mark.long
def test_records_of_every_input_arrive_field_by_field_at_every_output(
    installation: Installation, request: pytest.FixtureRequest
) -> None:
    batches = batched(all_pairs(), _SIDE_BY_SIDE)
    assert not [failure for pairs in batches for failure in _failures(installation, request, pairs)]


@pytest.mark.long
def test_records_arrive_although_the_workers_that_read_and_deliver_them_are_killed(
    installation: Installation, request: pytest.FixtureRequest
) -> None:
    pairs = covering_pairs()
    start_servers(request, chain.from_iterable(pairs))
    installation.set_job("stop")
    with ExitStack() as open_ends:
        runs = [_Run(installation, open_ends, *pair, MANY) for pair in pairs]
        installation.set_job("start")
        for run in runs:
            run.write_if_read()
        expected = sum(len(run.expected) for run in runs)
        for number in range(1, _KILLS + 1):
            due = expected * number // (_KILLS + 1)
            wait_until(lambda due=due: sum(len(run.received()) for run in runs) >= due, _ARRIVAL_SECONDS)  # type: ignore[misc]
            for worker in installation.lane_workers():
                worker.kill()
        for run in runs:
            run.check()


@pytest.mark.n8n
def test_records_of_n8n_arrive_field_by_field_at_every_output(
    installation: Installation, request: pytest.FixtureRequest
) -> None:
    assert not _failures(installation, request, all_pairs("n8n"))


def _failures(installation: Installation, request: pytest.FixtureRequest, pairs: Sequence[Pair]) -> list[str]:
    """What did not arrive as it was. All pairs run at the same time."""
    start_servers(request, chain.from_iterable(pairs))
    with ExitStack() as open_ends:
        runs = []
        for pair in pairs:
            run = _Run(installation, open_ends, *pair, RECORDS)
            run.write_if_read()
            runs.append(run)
        return [failure for run in runs if (failure := run.failure())]


class _Run:
    """A pair with the pipeline between them, which is removed when ``open_ends`` are closed."""

    def __init__(
        self,
        installation: Installation,
        open_ends: ExitStack,
        inlet: type[Inlet],
        outlet: type[Outlet],
        records: Sequence[Record],
    ) -> None:
        self._installation = installation
        self._inlet, self._outlet = inlet(), outlet()
        self._records = [record for record in records if inlet.holds(record) and outlet.holds(record)]
        self.expected = [canonical(record) for record in self._records]
        open_ends.callback(self._inlet.close)
        open_ends.callback(self._outlet.close)
        if inlet.exists_before:
            self._inlet.write(self._records)
        self._pipeline = _published(installation, self._inlet, self._outlet)
        open_ends.callback(_remove, installation, self._pipeline)

    def write_if_read(self) -> None:
        """To an inlet that exists only while a pipeline reads it."""
        if not self._inlet.exists_before:
            self._inlet.write(self._records)

    def failure(self) -> str:
        try:
            self.check()
        except (AssertionError, pytest.fail.Exception) as error:
            print(failure := f"{self._name}: {error}"[:3000])  # immediately: the other pairs may run for minutes
            return failure
        return ""

    def check(self) -> None:
        """Waits until all have arrived."""
        wait_until(lambda: len(self.received()) >= len(self.expected), _ARRIVAL_SECONDS, 0.5, self._explanation)
        assert self.received() == self.expected, self._name

    def received(self) -> list[Record]:
        """By id; what was delivered twice counts once, if it is the same."""
        records: list[Record] = []
        for record in sorted(map(self._canonical, self._outlet.read()), key=lambda record: record["id"]):
            if records[-1:] != [record]:
                records.append(record)
        return records

    def _canonical(self, record: Record) -> Record:
        return canonical(record, has_texts_of_documents=self._inlet.has_texts_of_documents)

    @property
    def _name(self) -> str:
        return f"{type(self._inlet).__name__} to {type(self._outlet).__name__}"

    def _explanation(self) -> str:
        """With what the console shows of a pipeline that does not deliver."""
        paths = (
            f"pipelines/{self._pipeline}/input-state/",
            f"pipelines/{self._pipeline}/outputs/",
            f"attempts/?pipeline={self._pipeline}",
            f"dead-letters/?pipeline={self._pipeline}",
        )
        shown = "\n".join(f"{path}: {self._installation.text(path)[:3000]}" for path in paths)
        return f"{[record['id'] for record in self.received()]} arrived. {self._name}: {shown}"


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
