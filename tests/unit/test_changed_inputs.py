"""Which changes of an input let reading go on, and which make it start anew."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.connectors.postgres_cdc import CdcReadStream
from backend.domain.capabilities import Capability, ReadBatch, ReadStream
from backend.domain.connector import connectors
from backend.domain.inputs.connector import Cause, ConnectorInput, changes_of_source
from backend.domain.model import SAME_SOURCE

CONNECTOR, OTHER = UUID(int=1), UUID(int=2)
TABLE: dict[str, Any] = {
    "source": {"type": "table", "table": "public.orders"},
    "mode": {"type": "timestamp", "timestamp_column": "updated_at"},
}
TABLES: dict[str, Any] = {"source": {"type": "tables", "tables": ["orders"]}, "mode": TABLE["mode"]}
PAGES: dict[str, Any] = {"mode": {"type": "incremental", "field": "at"}}
DOCUMENTS: dict[str, Any] = {"database": "shop", "collection": "orders", "mode": {"type": "incremental"}}
FILES: dict[str, Any] = {"format": {"type": "csv"}}
SHARED: dict[str, Any] = {"share": "s", "schema_name": "d", "table": "orders"}
NODE = {"name": "Every hour", "type": "n8n-nodes-base.scheduleTrigger", "typeVersion": 1}
WORKFLOW: dict[str, Any] = {"workflow": {"name": "Orders", "nodes": [NODE], "connections": {}}, "node": "Every hour"}

GOES_ON: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("sql", TABLE, {"batch_rows": 7}),
    ("jdbc", TABLE, {"batch_bytes": 7}),
    ("sql", TABLE, {"mode": TABLE["mode"] | {"delay_seconds": 60}}),
    ("sql", TABLE | {"mode": {"type": "bulk"}}, {"mode": {"type": "bulk", "repeat_minutes": 5}}),
    ("sql", TABLE | {"mode": {"type": "bulk"}}, {"mode": {"type": "bulk", "readers": 16}}),
    ("sql", TABLES, {"source": {"type": "tables", "tables": ["orders", "customers"]}}),
    ("http", PAGES, {"pages_per_second": 2.5, "timeout_seconds": 9, "page_bytes": 2048}),
    ("http", PAGES | {"paging": {"type": "offset"}}, {"paging": {"type": "offset", "size": 5}}),
    ("http", {"mode": {"type": "whole"}}, {"mode": {"type": "whole", "repeat_minutes": 5}}),
    ("mongodb", DOCUMENTS, {"most_documents": 3}),
    ("mongodb", DOCUMENTS, {"mode": {"type": "incremental", "delay_seconds": 0}}),
    ("s3", FILES, {"bad_files": "skip"}),
    ("local_files", FILES, {"settle_seconds": 99}),
    ("local_files", FILES, {"marker": "{name}.done"}),
    ("delta_sharing", SHARED, {"batch_rows": 3}),
    ("delta_sharing", SHARED, {"mode": {"type": "snapshot", "repeat": True}}),
    ("postgres_cdc", {"tables": ["public.orders"]}, {"retained_megabytes": 1}),
]
STARTS_ANEW: list[tuple[str, dict[str, Any], dict[str, Any], list[str]]] = [
    ("sql", TABLE, {"source": {"type": "table", "table": "other"}}, ["source.table"]),
    ("sql", TABLE, {"source": TABLES["source"]}, ["source"]),
    ("sql", TABLE, {"source": {"type": "query", "query": "SELECT 1"}}, ["source"]),
    ("sql", TABLE, {"mode": {"type": "incrementing", "column": "id"}, "key": ["id"]}, ["mode", "key"]),
    ("jdbc", TABLE, {"mode": TABLE["mode"] | {"timestamp_column": "at"}}, ["mode.timestamp_column"]),
    ("http", PAGES, {"path": "/orders", "parameters": {"status": "paid"}}, ["path", "parameters"]),
    ("http", PAGES, {"mode": PAGES["mode"] | {"initial": "2026"}}, ["mode.initial"]),
    # A page's number means other records when pages have another size.
    ("http", PAGES | {"paging": {"type": "page"}}, {"paging": {"type": "page", "size": 5}}, ["paging.size"]),
    ("mongodb", DOCUMENTS, {"filter": {"status": "paid"}}, ["filter"]),
    ("mongodb", DOCUMENTS, {"mode": {"type": "whole"}}, ["mode"]),
    ("s3", FILES, {"prefix": "a", "pattern": "*.csv"}, ["prefix", "pattern"]),
    ("sftp", FILES, {"format": {"type": "csv", "header": False}}, ["format.header"]),
    ("delta_sharing", SHARED, {"mode": {"type": "changes"}}, ["mode"]),
    ("kinesis", {"stream": "orders"}, {"stream": "others"}, ["stream"]),
    ("postgres_cdc", {"tables": ["public.orders"]}, {"tables": []}, ["tables"]),
    ("n8n", WORKFLOW, {"workflow": WORKFLOW["workflow"] | {"name": "Other"}}, ["workflow"]),
]


def reader(connector: str) -> type[Capability[Any, Any]]:
    found = connectors.get(connector).capability(ReadBatch) or connectors.get(connector).capability(ReadStream)
    assert found is not None
    return found


def causes(type: str, former: dict[str, Any], present: dict[str, Any], connector: UUID = CONNECTOR) -> list[Cause]:
    stored = ConnectorInput(connector=CONNECTOR, options=former).model_dump(mode="json")
    return changes_of_source(stored, ConnectorInput(connector=connector, options=present), reader(type))


@pytest.mark.parametrize(("type", "options", "change"), GOES_ON)
def test_reading_goes_on_when_only_its_pace_changes(type: str, options: dict[str, Any], change: dict[str, Any]) -> None:
    assert causes(type, options, options | change) == []
    assert causes(type, options | change, options) == []


@pytest.mark.parametrize(("type", "options", "change", "fields"), STARTS_ANEW)
def test_reading_starts_anew_when_something_else_is_read_and_says_because_of_what(
    type: str, options: dict[str, Any], change: dict[str, Any], fields: list[str]
) -> None:
    expected = [f"input.options.{field}" for field in fields]
    assert [cause.path for cause in causes(type, options, options | change)] == expected
    assert [cause.path for cause in causes(type, options | change, options)] == expected


def test_a_cause_has_the_label_of_its_field() -> None:
    changed = causes("sql", TABLE, TABLE | {"source": {"type": "table", "table": "other"}, "key": ["id"]})
    assert [cause.title for cause in changed] == ["Table", "Key"]


def test_another_connector_starts_anew_whatever_its_options_are() -> None:
    assert causes("sql", TABLE, TABLE, OTHER) == [Cause("input.connector", "Connector")]


def test_what_is_not_written_is_the_same_as_its_default() -> None:
    assert causes("sql", TABLE, TABLE | {"key": [], "batch_rows": 1000}) == []


def test_options_of_a_release_that_this_one_cannot_judge_start_anew_unless_they_are_the_same() -> None:
    assert causes("sql", TABLE | {"gone": 1}, TABLE | {"gone": 1}) == []
    assert causes("sql", TABLE | {"gone": 1}, TABLE) == [Cause("input.options", "Options")]


@given(rows=st.integers(1, 10_000), seconds=st.integers(1, 86_400), ordering=st.sampled_from([None, "id", "a.b"]))
def test_portions_interval_and_order_never_start_anew(rows: int, seconds: int, ordering: str | None) -> None:
    stored = ConnectorInput(connector=CONNECTOR, options=TABLE).model_dump(mode="json")
    options = TABLE | {"batch_rows": rows}
    present = ConnectorInput(connector=CONNECTOR, options=options, every_seconds=seconds, ordering_key=ordering)
    assert changes_of_source(stored, present, reader("sql")) == []


@given(st.text(min_size=1, max_size=50), st.text(min_size=1, max_size=50))
def test_a_table_starts_anew_exactly_when_it_is_another(former: str, present: str) -> None:
    options = [TABLE | {"source": {"type": "table", "table": name}} for name in (former, present)]
    assert bool(causes("sql", *options)) == (former != present)


def test_only_a_snapshot_of_changes_needs_its_breakpoint() -> None:
    assert CdcReadStream.goes_on_from([3, "0/16B3748", "0/16B3700", "public", "orders", ["id"], ["7"]])
    assert not CdcReadStream.goes_on_from([3, "0/16B3748"])


def marks(schema: Any) -> int:
    if isinstance(schema, dict):
        return int(schema.items() >= SAME_SOURCE.items()) + sum(marks(value) for value in schema.values())
    return sum(map(marks, schema)) if isinstance(schema, list) else 0


@pytest.mark.parametrize("connector", list(connectors), ids=lambda connector: connector.type)
def test_options_say_that_the_source_stays_the_same_only_where_headrace_keeps_the_position(connector: Any) -> None:
    kept = {
        capability.options_model
        for capability in connector.capabilities
        if issubclass(capability, ReadBatch) or (issubclass(capability, ReadStream) and capability.keeps_position)
    }
    for capability in connector.capabilities:
        if capability.options_model not in kept:
            assert marks(capability.options_model.model_json_schema()) == 0, capability.__name__
