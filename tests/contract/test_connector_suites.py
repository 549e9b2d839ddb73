"""Every connector passes the suites of its capabilities against a real server."""

from importlib import import_module
from types import ModuleType

import pytest

from backend.domain.capabilities import (
    CAPABILITIES,
    Call,
    Collect,
    Deliver,
    DeliverBatch,
    Export,
    ReadBatch,
    ReadStream,
    Register,
    Verify,
)
from backend.domain.connector import Connector, connectors
from backend.settings import ROOT
from tests.integration.connectors import suites

SUITES: dict[type, type] = {
    Deliver: suites.DeliverSuite,
    DeliverBatch: suites.DeliverBatchSuite,
    ReadBatch: suites.ReadBatchSuite,
    ReadStream: suites.ReadStreamSuite,
    Verify: suites.VerifySuite,
    Call: suites.CallSuite,
    Export: suites.ExportSuite,
    Collect: suites.CollectSuite,
    Register: suites.RegisterSuite,
}
CASES = "tests/integration/connectors"
own = [
    connector
    for connector in connectors
    if connector.__module__.startswith("backend.connectors.") and not connector.type.startswith("toy_")
]


def case_modules(connector: type[Connector]) -> list[ModuleType]:
    """The file of its cases, or those of a folder."""
    name = connector.__module__.rpartition(".")[2]
    files = sorted((ROOT / CASES / name).glob("test_*.py")) or [ROOT / CASES / f"test_{name}.py"]
    return [import_module(".".join(file.relative_to(ROOT).with_suffix("").parts)) for file in files]


def test_every_capability_has_a_suite() -> None:
    assert set(SUITES) == set(CAPABILITIES)


def case_classes(connector: type[Connector]) -> list[type]:
    return [
        value
        for module in case_modules(connector)
        for name, value in vars(module).items()
        if isinstance(value, type) and name.startswith("Test") and getattr(value, "type", None) == connector.type
    ]


every_own_connector = pytest.mark.parametrize("connector", own, ids=lambda connector: connector.type)


@every_own_connector
def test_its_cases_inherit_the_suites_of_its_capabilities(connector: type[Connector]) -> None:
    classes = case_classes(connector)
    missing = [
        suite.__name__
        for kind, suite in SUITES.items()
        if connector.capability(kind) and not any(issubclass(cases_class, suite) for cases_class in classes)
    ]
    assert not missing, f"{connector.type} needs a class for each of these, against a real server: {missing}"


@every_own_connector
def test_its_cases_forbid_its_addresses(connector: type[Connector]) -> None:
    """Those of most capabilities do."""
    if connector.connection_model.model_validate(connector.example).hosts():
        assert any(issubclass(cases_class, suites.Reaching) for cases_class in case_classes(connector))


@every_own_connector
def test_the_catalogue_has_a_row_for_it(connector: type[Connector]) -> None:
    link = f"](docs/connectors/{connector.type}.md)"
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| [")]
    assert any(link in row for row in rows), f"README.md needs a row: | [{connector.title}{link} | … |"
