"""Which staged messages make a file, and who may write it."""

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from backend.apps.exports.forming import empty_files_form, exports_form
from backend.apps.exports.models import Export, StagedPart, StagingPosition
from backend.apps.exports.retention import exports_remove
from backend.apps.exports.services import (
    export_abort,
    export_claim,
    export_complete,
    export_fail,
    export_record_manifest,
    export_record_upload,
    export_retry,
    exports_renew,
)
from backend.apps.exports.staging import parts_forget, parts_register, parts_unused, paths_unknown
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.services import pipeline_delete, pipeline_pause, pipeline_publish, pipeline_update
from backend.apps.workspaces.models import User
from backend.domain.errors import ConflictError
from tests import factories
from tests.integration.exports.stores import storing_pipeline

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_server", "secret_keys")]


def part(
    pipeline: Pipeline, rows: int, *, version: int = 1, size: int = 10, age: timedelta = timedelta()
) -> StagedPart:
    """A staged part with so many rows of that size."""
    made = StagedPart.objects.create(
        workspace_id=pipeline.workspace_id,
        pipeline_id=pipeline.pk,
        output="files",
        version=version,
        path=str(uuid4()),
        rows=rows,
        bytes=rows * size,
    )
    StagedPart.objects.filter(pk=made.pk).update(staged_at=timezone.now() - age)
    return made


def slices(exports: list[Export]) -> list[list[tuple[int, int]]]:
    """The first row and the rows of each piece of each file."""
    return [[(first, rows) for _, _, first, rows in export.slices] for export in exports]


def actor(pipeline: Pipeline) -> User:
    return factories.admin_of(pipeline.workspace)


def claimed() -> tuple[Export, dict[str, Any]]:
    export = export_claim(holder="test")
    assert export is not None
    return export, {"export_id": export.pk, "token": export.token}


def test_files_have_exactly_as_many_messages_as_was_asked_for(tmp_path: Path) -> None:
    pipeline = storing_pipeline(tmp_path, rows=10)
    part(pipeline, 4)
    part(pipeline, 23)
    made = exports_form()
    assert slices(made) == [[(0, 4), (0, 6)], [(6, 10)]]
    assert [export.rows for export in made] == [10, 10]
    assert exports_form() == []
    part(pipeline, 3)
    assert slices(exports_form()) == [[(16, 7), (0, 3)]]


def test_files_are_as_large_as_was_asked_for(tmp_path: Path) -> None:
    pipeline = storing_pipeline(tmp_path, rows=None, bytes=100)
    part(pipeline, 7)
    assert exports_form() == []
    part(pipeline, 7)
    assert slices(exports_form()) == [[(0, 7), (0, 3)]]


def test_a_message_larger_than_a_file_has_one_of_its_own(tmp_path: Path) -> None:
    pipeline = storing_pipeline(tmp_path, rows=None, bytes=100)
    part(pipeline, 2, size=500)
    assert slices(exports_form()) == [[(0, 1)], [(1, 1)]]


def test_what_has_waited_long_enough_becomes_a_file(tmp_path: Path) -> None:
    pipeline = storing_pipeline(tmp_path, rows=10, minutes=5)
    part(pipeline, 3)
    assert exports_form() == []
    part(pipeline, 8, age=timedelta(minutes=6))
    assert slices(exports_form()) == [[(0, 3), (0, 7)], [(7, 1)]]


def test_at_a_scheduled_time_without_messages_there_is_one_file_without_any(tmp_path: Path) -> None:
    pipeline = storing_pipeline(tmp_path, schedule="0 0 1 1 *", empty_files=True)
    storing_pipeline(tmp_path / "other", schedule="0 0 1 1 *")
    assert empty_files_form() == []  # no time of the schedule has passed since it was published
    Pipeline.objects.update(published_at=timezone.now() - timedelta(days=400))
    [empty] = empty_files_form()
    assert (empty.pipeline_id, empty.rows, empty.slices, empty.state) == (pipeline.pk, 0, [], Export.State.STAGED)
    assert empty_files_form() == []
    # Messages that wait at that time make the file.
    Export.objects.update(created_at=timezone.now() - timedelta(days=400))
    part(pipeline, 3, age=timedelta(days=400))
    assert empty_files_form() == []
    assert [export.rows for export in exports_form()] == [3]
    assert empty_files_form() == []
    # Those that have come since then are for the next time.
    Export.objects.update(created_at=timezone.now() - timedelta(days=400))
    part(pipeline, 3)
    assert exports_form() == []
    assert [export.rows for export in empty_files_form()] == [0]


def test_while_a_pipeline_is_paused_no_file_says_that_there_were_no_messages(tmp_path: Path) -> None:
    storing_pipeline(tmp_path, schedule="0 0 1 1 *", empty_files=True)
    Pipeline.objects.update(published_at=timezone.now() - timedelta(days=400), paused=True)
    assert empty_files_form() == []
    Pipeline.objects.update(paused=False)
    assert [export.rows for export in empty_files_form()] == [0]


def test_a_failed_file_without_messages_can_be_retried(tmp_path: Path) -> None:
    pipeline = storing_pipeline(tmp_path, schedule="0 0 1 1 *", empty_files=True)
    Pipeline.objects.update(published_at=timezone.now() - timedelta(days=400))
    empty_files_form()
    export, held = claimed()
    export_fail(**held, reason="forbidden", error="The folder is not writable.", retryable=False)
    retried = export_retry(export=export, actor=actor(pipeline), use_current_version=False)
    assert (retried.state, claimed()[0].pk) == (Export.State.STAGED, export.pk)


def test_versions_do_not_share_a_file_and_former_ones_are_completed(tmp_path: Path) -> None:
    pipeline = storing_pipeline(tmp_path, rows=10)
    part(pipeline, 3, age=timedelta(minutes=2))
    assert pipeline.published is not None
    config = dict(pipeline.published.config)
    config["outputs"][0]["files"]["rows"] = 20
    pipeline_update(pipeline=pipeline, actor=actor(pipeline), name=pipeline.name, config=config)
    pipeline_publish(pipeline=pipeline, actor=actor(pipeline))
    part(pipeline, 12, version=2, age=timedelta(minutes=2))
    [former] = exports_form()
    assert (former.version, former.rows) == (1, 3)


def test_no_two_files_of_a_connector_have_the_same_name(tmp_path: Path) -> None:
    pipeline = storing_pipeline(tmp_path, rows=1, name="{number}")
    assert pipeline.published is not None
    other = factories.make_pipeline(pipeline.workspace, outputs=pipeline.published.config["outputs"])
    pipeline_publish(pipeline=other, actor=actor(pipeline))
    part(pipeline, 2)
    part(other, 2)
    assert sorted(export.path for export in exports_form()) == [f"{number:08d}.jsonl" for number in (1, 2, 3, 4)]


def test_messages_of_a_deleted_pipeline_are_kept_as_a_failed_file(tmp_path: Path) -> None:
    pipeline = storing_pipeline(tmp_path)
    part(pipeline, 3)
    pipeline_pause(pipeline=pipeline, actor=actor(pipeline))
    pipeline.refresh_from_db()
    workspace_actor = actor(pipeline)
    pipeline_delete(pipeline=pipeline, actor=workspace_actor)
    [kept] = exports_form()
    assert (kept.state, kept.reason, kept.rows) == (Export.State.FAILED, "pipeline_deleted", 3)
    assert export_claim(holder="test") is None
    with pytest.raises(ConflictError, match="deleted"):
        export_retry(export=kept, actor=workspace_actor, use_current_version=False)


def test_records_are_staged_once() -> None:
    staged = {"workspace_id": uuid4(), "pipeline_id": uuid4(), "output": "files", "version": 1, "rows": 1, "bytes": 1}
    parts_register(partition=7, start=None, end=10, parts=[staged | {"path": "a"}])
    with pytest.raises(ConflictError):
        parts_register(partition=7, start=None, end=12, parts=[staged | {"path": "b"}])
    parts_register(partition=7, start=10, end=20, parts=[staged | {"path": "c"}])
    with pytest.raises(ConflictError):
        parts_register(partition=7, start=10, end=15, parts=[staged | {"path": "d"}])
    assert StagingPosition.objects.get(partition=7).offset == 20
    assert set(StagedPart.objects.values_list("path", flat=True)) == {"a", "c"}
    assert paths_unknown(["a", "b", "c"]) == ["b"]


def test_a_part_is_removed_once_all_of_its_files_are_stored(tmp_path: Path) -> None:
    pipeline = storing_pipeline(tmp_path, rows=5, minutes=5)
    shared = part(pipeline, 8, age=timedelta(minutes=6))
    first, held = claimed()
    export_complete(**held)
    assert parts_unused(10) == []
    _, held = claimed()
    export_complete(**held)
    assert [unused.pk for unused in parts_unused(10)] == [shared.pk]
    parts_forget([shared.pk])
    assert not StagedPart.objects.exists()
    first.refresh_from_db()
    assert first.state == Export.State.COMMITTED


def test_the_files_of_an_output_are_written_in_order(tmp_path: Path) -> None:
    pipeline = storing_pipeline(tmp_path, rows=1)
    part(pipeline, 2)
    first, held = claimed()
    assert export_claim(holder="another") is None
    export_fail(**held, reason="connection", error="The store is down.", retryable=True)
    assert export_claim(holder="another") is None  # the first is due later
    Export.objects.filter(pk=first.pk).update(due_at=timezone.now())
    again, held = claimed()
    assert again.pk == first.pk
    export_fail(**held, reason="forbidden", error="The store refuses the file.", retryable=False)
    second, _ = claimed()
    assert second.number == 2


def test_a_writer_that_lost_its_export_can_report_nothing(tmp_path: Path) -> None:
    part(storing_pipeline(tmp_path, rows=1), 1)
    first, lost = claimed()
    Export.objects.update(locked_until=timezone.now() - timedelta(seconds=1))
    assert first.token is not None
    assert exports_renew([(first.pk, first.token, 0)]) == []
    _, held = claimed()
    for report in (
        lambda: export_record_upload(**lost, upload={"id": 1}),
        lambda: export_record_manifest(**lost, manifest={"rows": 1}, preview={}),
        lambda: export_complete(**lost),
        lambda: export_fail(**lost, reason="internal", error="", retryable=True),
    ):
        with pytest.raises(ConflictError):
            report()
    export_record_upload(**held, upload={"id": 2})
    first.refresh_from_db()
    assert first.upload == {"id": 2}


def test_an_export_that_may_be_visible_cannot_be_aborted(tmp_path: Path) -> None:
    pipeline = storing_pipeline(tmp_path, rows=1)
    part(pipeline, 1)
    export, held = claimed()
    export_record_manifest(**held, manifest={"rows": 1}, preview={})
    with pytest.raises(ConflictError, match="cannot be stopped"):
        export_abort(export=export, actor=actor(pipeline))
    export_fail(**held, reason="answer", error="There is no such upload.", retryable=False)
    with pytest.raises(ConflictError, match="its own version"):
        export_retry(export=export, actor=actor(pipeline), use_current_version=True)
    retried = export_retry(export=export, actor=actor(pipeline), use_current_version=False)
    assert retried.manifest is None  # begins anew


def test_an_aborted_export_can_be_retried_for_some_days(tmp_path: Path) -> None:
    pipeline = storing_pipeline(tmp_path, rows=1)
    kept = part(pipeline, 1)
    export, held = claimed()
    export_record_upload(**held, upload={"id": 1})
    export_abort(export=export, actor=actor(pipeline))
    with pytest.raises(ConflictError):
        export_complete(**held)
    removing, held = claimed()
    assert (removing.pk, removing.state, removing.upload) == (export.pk, Export.State.ABORTED, {"id": 1})
    export_complete(**held)
    assert export_claim(holder="test") is None
    assert parts_unused(10) == []
    export_retry(export=export, actor=actor(pipeline), use_current_version=False)
    export_abort(export=export, actor=actor(pipeline))
    Export.objects.update(closed_at=timezone.now() - timedelta(days=8))
    assert [unused.pk for unused in parts_unused(10)] == [kept.pk]
    with pytest.raises(ConflictError, match="not kept"):
        export_retry(export=export, actor=actor(pipeline), use_current_version=False)


def test_what_ended_is_removed_after_some_time_but_neither_its_number_nor_its_name_is_given_again(
    tmp_path: Path,
) -> None:
    pipeline = storing_pipeline(tmp_path, rows=1, name="{number}")
    part(pipeline, 4)
    for _ in range(2):
        _, held = claimed()
        export_complete(**held)
    failed, held = claimed()
    export_fail(**held, reason="unfit_value", error="A value does not fit.", retryable=False)
    last, held = claimed()
    export_complete(**held)
    month = timedelta(days=30)
    assert exports_remove(keep=month) == 0
    Export.objects.filter(state=Export.State.COMMITTED).update(closed_at=timezone.now() - timedelta(days=31))
    assert exports_remove(keep=month) == 2
    assert set(Export.objects.all()) == {failed, last}

    part(pipeline, 1)
    [following] = exports_form()
    assert (following.number, following.path) == (5, "00000005.jsonl")
    assert pipeline.published is not None
    other = factories.make_pipeline(pipeline.workspace, outputs=pipeline.published.config["outputs"])
    pipeline_publish(pipeline=other, actor=actor(pipeline))
    part(other, 1)
    [of_another_pipeline] = exports_form()
    assert of_another_pipeline.path == "00000006.jsonl"

    export_abort(export=failed, actor=actor(pipeline))
    Export.objects.update(closed_at=timezone.now() - timedelta(days=31))
    assert exports_remove(keep=month) == 1  # the last one; the aborted one still holds its messages
    parts_unused(10)
    assert exports_remove(keep=month) == 1


def test_a_retry_may_use_what_was_published_since(tmp_path: Path) -> None:
    pipeline = storing_pipeline(tmp_path, rows=1, name="{number}")
    part(pipeline, 1)
    export, held = claimed()
    export_fail(**held, reason="unfit_value", error="A value does not fit.", retryable=False)
    assert pipeline.published is not None
    config = dict(pipeline.published.config)
    config["outputs"][0]["files"]["format"] = "csv"
    pipeline_update(pipeline=pipeline, actor=actor(pipeline), name=pipeline.name, config=config)
    pipeline_publish(pipeline=pipeline, actor=actor(pipeline))
    retried = export_retry(export=export, actor=actor(pipeline), use_current_version=True)
    assert (retried.version, retried.path, retried.state) == (2, "00000001.csv", Export.State.STAGED)
