"""What the files of an output may be, when one is complete, and what it is called."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from pydantic import ValidationError

from backend.domain.connector import connectors
from backend.domain.export_policy import ExportPolicy
from backend.domain.pipeline import OutputConfig

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"format": "avro", "compression": "gzip"}, "cannot be compressed with gzip"),
        ({"format": "xml"}, "Input should be"),
        ({"columns": [{"path": "a", "type": "integer"}]}, "Only Parquet and Avro have column types"),
        ({"columns": [{"path": "a"}, {"path": "b", "name": "a"}]}, "repeated: a"),
        ({"format": "avro", "columns": [{"path": "a.b"}]}, "give the column a.b another name"),
        ({"rows": None, "minutes": None}, "never be complete"),
        ({"name": "orders"}, "needs {number} or {id}"),
        ({"name": "{nmber}"}, "no placeholder {nmber}"),
        ({"name": "../{number}"}, "without '..'"),
        ({"name": "/{number}"}, "without empty folders"),
        ({"name": "a b {number}"}, "letters, digits"),
        ({"schedule": "every day"}, "not a cron expression"),
        ({"schedule": "0 0 30 2 *"}, "not a cron expression"),
        ({"timezone": "Mars"}, "no time zone"),
        ({"empty_files": True}, "need a schedule"),
        ({"empty_files": True, "schedule": "0 3 * * *", "format": "avro"}, "need columns with types"),
        (
            {"empty_files": True, "schedule": "0 3 * * *", "format": "parquet", "columns": [{"path": "a"}]},
            "need columns with types",
        ),
        ({"marker": "{name}"}, "has to differ from the file's"),
        ({"marker": "{number}.done"}, "no placeholder {number}"),
        ({"marker": "done/{name}"}, "without folders"),
        ({"marker": ".."}, "without folders"),
        ({"marker": "done-{name}"}, "must not end as files"),
        ({"marker": "{stem}.csv"}, "must not end as files"),
        ({"marker": "{name}.manifest.json"}, "must not end as files"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence.replace("{", "\\{")):
        ExportPolicy.model_validate(fields)


@pytest.mark.parametrize(
    ("type", "fields", "refused"),
    [
        ("http", {"files": {}}, {"files": "Store cannot store files."}),
        ("toy_store", {"batch": {}}, {"batch": "Store stores files, which have limits of their own: see Files."}),
        ("toy_store", {}, {}),
        ("toy_store", {"files": {}}, {}),
        ("toy_lines", {}, {"connector": "Store cannot deliver messages."}),
    ],
)
def test_files_and_connector_have_to_fit(type: str, fields: dict[str, Any], refused: dict[str, str]) -> None:
    output = OutputConfig.model_validate({"name": "out", "connector": uuid4(), **fields})
    assert output.refusals(connectors.get(type), "Store") == refused


@pytest.mark.parametrize(
    ("name", "path", "folder"),
    [
        ("{pipeline}/{output}/{date}/{number}", "Orders/files/2026-03-01/00000001.jsonl", "Orders/files/"),
        ("a/{pipeline}-x/{number}", "a/Orders-x/00000001.jsonl", "a/Orders-x/"),
        ("a/{pipeline}-{year}/b/{number}", "a/Orders-2026/b/00000001.jsonl", "a/"),
        ("{number}", "00000001.jsonl", ""),
    ],
)
def test_the_folders_of_all_files_are_known(name: str, path: str, folder: str) -> None:
    policy = ExportPolicy.model_validate({"name": name})
    assert policy.folder_of(path) == folder
    assert policy.is_named_so(path)


@pytest.mark.parametrize(
    ("path", "ours"),
    [
        ("Orders/2026-03-01/00000001.csv.gz", True),
        ("Orders/2026-03-01/123456789.csv.gz", True),
        ("Orders/2026-03-01/00000001.csv.gz.manifest.json", True),
        ("Orders/2026-03-01/00000001.done", True),
        ("Orders/2026-03-01/00000001.csv", False),
        ("Orders/2026-03-01/backup.csv.gz", False),
        ("Orders/March/00000001.csv.gz", False),
        ("Orders/2026-03-01/deeper/00000001.csv.gz", False),
        ("elsewhere/00000001.done", False),
    ],
)
def test_files_of_an_output_are_known_by_their_names(path: str, ours: bool) -> None:
    policy = ExportPolicy.model_validate(
        {"name": "{pipeline}/{date}/{number}", "format": "csv", "compression": "gzip", "marker": "{stem}.done"}
    )
    assert policy.is_named_so(path) is ours


def test_an_output_cannot_have_files_and_batches() -> None:
    with pytest.raises(ValidationError, match="either stores files or sends batches"):
        OutputConfig.model_validate({"name": "out", "connector": uuid4(), "files": {}, "batch": {}})


@pytest.mark.parametrize(
    ("fields", "waited", "due"),
    [
        ({"minutes": 60}, timedelta(minutes=59), False),
        ({"minutes": 60}, timedelta(minutes=60), True),
        ({"minutes": None, "schedule": "0 9 * * *"}, timedelta(hours=2, minutes=59), False),
        ({"minutes": None, "schedule": "0 9 * * *"}, timedelta(hours=3, minutes=1), True),
        # Noon in UTC is nine in São Paulo.
        ({"minutes": None, "schedule": "0 9 * * *", "timezone": "America/Sao_Paulo"}, timedelta(seconds=1), True),
        ({"minutes": None}, timedelta(days=30), False),
    ],
)
def test_a_file_is_due_by_age_or_schedule(fields: dict[str, Any], waited: timedelta, due: bool) -> None:
    assert ExportPolicy.model_validate(fields).is_due(NOON - waited, NOON) is due


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "Orders-in-S-o-Paulo/files/2026-03-01/00000007.jsonl"),
        (
            {"format": "csv", "compression": "gzip", "name": "{year}/{month}/{day}/{hour}-{number}"},
            "2026/03/01/12-00000007.csv.gz",
        ),
        ({"format": "parquet", "compression": "zstd", "name": "v{version}/{id}.parquet"}, "v3/e1.parquet"),
        ({"name": "{time}_{number}", "timezone": "America/Sao_Paulo"}, "090000_00000007.jsonl"),
    ],
)
def test_names(fields: dict[str, Any], path: str) -> None:
    made = ExportPolicy.model_validate(fields).file_name(
        pipeline="Orders in São Paulo", pipeline_id="p", output="files", version=3, number=7, id="e1", at=NOON
    )
    assert made == path
