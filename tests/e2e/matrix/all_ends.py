"""Finds the ends that the modules of this package declare."""

import inspect
import pkgutil
from importlib import import_module
from itertools import product
from typing import TypeVar

from tests.e2e import matrix
from tests.e2e.matrix.ends import Inlet, Outlet

EndT = TypeVar("EndT", Inlet, Outlet)
Pair = tuple[type[Inlet], type[Outlet]]


def ends_of(kind: type[EndT], marker: str = "") -> list[type[EndT]]:
    modules = [import_module(f"{matrix.__name__}.{module.name}") for module in pkgutil.iter_modules(matrix.__path__)]
    classes = {one for module in modules for _, one in inspect.getmembers(module, inspect.isclass)}
    chosen = [one for one in classes if issubclass(one, kind) and not inspect.isabstract(one)]
    chosen = [one for one in chosen if one.marker == marker and not one.__name__.startswith("_")]
    return sorted(chosen, key=lambda one: one.__name__)


def covering_pairs() -> list[Pair]:
    """Every input and every output at least once."""
    inlets, outlets = ends_of(Inlet), ends_of(Outlet)
    return [
        (inlets[number % len(inlets)], outlets[number % len(outlets)])
        for number in range(max(len(inlets), len(outlets)))
    ]


def all_pairs(marker: str = "") -> list[Pair]:
    """Every input of that marker with every output."""
    return list(product(ends_of(Inlet, marker), ends_of(Outlet)))
