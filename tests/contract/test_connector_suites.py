"""Every connector that delivers passes the suite of its capability against a real server."""

import ast
from pathlib import Path

import pytest

from backend.domain.capabilities import Deliver, DeliverBatch
from backend.domain.connector import Connector, connectors
from backend.runtime.layout import ROOT
from backend.runtime.new_connector import write_connector

CASES = ROOT / "tests/integration/connectors"
SUITES = {Deliver: "DeliverSuite", DeliverBatch: "DeliverBatchSuite"}
own = [
    connector
    for connector in connectors
    if connector.__module__.startswith("backend.connectors.") and not connector.type.startswith("toy_")
]


@pytest.mark.parametrize("connector", own, ids=lambda connector: connector.type)
def test_its_cases_inherit_the_suites_of_its_capabilities(connector: type[Connector]) -> None:
    needed = {suite for kind, suite in SUITES.items() if connector.capability(kind)}
    if not needed:
        return
    cases = CASES / f"test_{connector.__module__.rpartition('.')[2]}.py"
    classes = [node for node in ast.parse(cases.read_text()).body if isinstance(node, ast.ClassDef)]
    inherited = {base.id for node in classes for base in node.bases if isinstance(base, ast.Name)}
    assert needed <= inherited


def test_a_new_connector_is_two_files_which_exist_once(tmp_path: Path) -> None:
    connector, cases = write_connector("amazon_sqs", tmp_path)
    assert connector == tmp_path / "backend/connectors/amazon_sqs.py"
    assert "class AmazonSqs(Connector)" in connector.read_text()
    compile(connector.read_text(), str(connector), "exec")
    compile(cases.read_text(), str(cases), "exec")
    with pytest.raises(FileExistsError):
        write_connector("amazon_sqs", tmp_path)
    for nonsense in ("", "../evil", "Amazon", "a-b"):
        with pytest.raises(ValueError, match="write it like amazon_sqs"):
            write_connector(nonsense, tmp_path)
