"""The servers of the ends, which are started when they are needed."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.matrix.ends import End
from tests.infra import Server

Started = dict[Callable[[], Server], Server]
"""Servers that no fixture starts, by what makes them."""


def start_servers(request: pytest.FixtureRequest, ends: Iterable[type[End]]) -> None:
    """Those of the ends that are not running yet, side by side."""
    started: Started = request.getfixturevalue("servers_of_ends")
    ends = set(ends)
    for fixture in {fixture for end in ends for fixture in end.fixtures}:
        request.getfixturevalue(fixture)
    missing = {make for end in ends for make in end.servers if make not in started}
    with ThreadPoolExecutor(max(1, len(missing))) as threads:  # some are compiled first, others installed
        for starting in [threads.submit(_start, make, started) for make in missing]:
            starting.result()


def _start(make: Callable[[], Server], started: Started) -> None:
    started[make] = make()
    started[make].start()
