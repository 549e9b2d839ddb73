"""Leases of inputs that the data plane polls."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import grpc
import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.utils import timezone
from rest_framework.test import APIClient

from backend.apps.audit.models import AuditEntry
from backend.apps.connectors.models import Connector
from backend.apps.connectors.services import connector_update
from backend.apps.connectors.signals import HEARD_AFTER
from backend.apps.manager.leases import (
    LOCK,
    LONGEST_BATCH,
    RETRY_AFTER,
    Progress,
    batch_complete,
    batch_split,
    leases_claim,
    leases_release,
    leases_renew,
)
from backend.apps.manager.models import InputLease
from backend.apps.pipelines.models import Pipeline
from backend.apps.pipelines.services import (
    pipeline_delete,
    pipeline_pause,
    pipeline_publish,
    pipeline_resume,
    pipeline_update,
)
from backend.domain.capabilities import Reading
from backend.domain.errors import ConfigError, ConflictError
from backend.domain.json import InvalidJsonError
from backend.domain.pipeline import PipelineConfig
from backend.manager_api.generated import manager_pb2 as pb
from backend.manager_api.generated.manager_pb2_grpc import ManagerStub
from tests import factories
from tests.infra import SERVICE_TOKEN
from tests.integration.conftest import MANAGER_ADDRESS, RunningManager

pytestmark = pytest.mark.django_db(transaction=True)

CONDITION = {"type": "equals", "field": "country", "value": "BR"}


EVERY = timedelta(seconds=30)
"""From the end of a batch to the next one, where a pipeline does not say."""


def published(**config: Any) -> Pipeline:
    workspace = factories.make_workspace()
    pipeline = factories.make_pipeline(workspace, **config)
    return pipeline_publish(pipeline=pipeline, actor=factories.admin_of(workspace))


def read_from(type: str, **options: Any) -> Pipeline:
    """A published pipeline that reads from a connector of that type."""
    connection = {"toy_lines": {"folder": "/nowhere"}}.get(type, {})
    workspace = factories.make_workspace()
    source = factories.make_connector(workspace, type=type, **connection)
    pipeline = factories.make_pipeline(workspace, input=input_of(source, **options))
    return pipeline_publish(pipeline=pipeline, actor=factories.admin_of(workspace))


def input_of(source: Connector, **options: Any) -> dict[str, Any]:
    return {"type": "connector", "connector": str(source.pk), "options": options}


def batching() -> Pipeline:
    return read_from("toy_lines", file="orders")


def streaming() -> Pipeline:
    return read_from("toy_ticks")


def source_of(pipeline: Pipeline) -> dict[str, Any]:
    """The published input."""
    assert pipeline.published is not None
    return dict(pipeline.published.config["input"])


def republished(pipeline: Pipeline, **config: Any) -> None:
    actor = factories.admin_of(pipeline.workspace)
    newest = pipeline.versions.first()
    assert newest is not None
    pipeline_update(pipeline=pipeline, actor=actor, name=pipeline.name, config=newest.config | config)
    pipeline_publish(pipeline=pipeline, actor=actor)


def claimed(reading: Reading = Reading.BATCHING, limit: int = 10) -> list[InputLease]:
    return leases_claim(reading=reading, holder="reader", limit=limit)


def token(lease: InputLease) -> Any:
    assert lease.token is not None
    return lease.token


def passed(field: str, pipeline: Pipeline, by: timedelta) -> None:
    """As if that much time had passed for the field."""
    lease = InputLease.objects.get(pipeline=pipeline)
    setattr(lease, field, getattr(lease, field) - by)
    lease.save()


def second_batch(pipeline: Pipeline) -> InputLease:
    """Claimed after a first one, which ended at the breakpoint 1."""
    [lease] = claimed()
    batch_complete(pipeline_id=pipeline.pk, token=token(lease), breakpoint=b"1")
    passed("visible_at", pipeline, EVERY)
    [lease] = claimed()
    return lease


def test_inputs_that_send_by_themselves_have_no_lease() -> None:
    published()
    assert not InputLease.objects.exists()


def test_a_batch_has_one_reader_and_the_next_begins_where_it_ended() -> None:
    pipeline = batching()
    [lease] = claimed()
    assert (lease.pipeline_id, lease.breakpoint) == (pipeline.pk, "")
    assert claimed() == []
    batch_complete(pipeline_id=pipeline.pk, token=token(lease), breakpoint=b'{"id": 12345678901234567890.50}')
    assert claimed() == []
    passed("visible_at", pipeline, EVERY)
    [again] = claimed()
    assert again.breakpoint == '{"id": 12345678901234567890.50}'
    assert again.token != lease.token


def test_a_batch_that_failed_is_read_again_from_where_it_began() -> None:
    pipeline = batching()
    lease = second_batch(pipeline)
    batch_complete(pipeline_id=pipeline.pk, token=token(lease), failure="The table is\0 gone.")
    passed("visible_at", pipeline, EVERY)
    [lease] = claimed()
    assert (lease.breakpoint, lease.failure) == ("1", "The table is gone.")
    batch_complete(pipeline_id=pipeline.pk, token=token(lease), breakpoint=b"2")
    assert InputLease.objects.get(pipeline=pipeline).failure == ""


def test_a_batch_that_failed_later_is_read_again_from_where_it_had_come() -> None:
    pipeline = batching()
    lease = second_batch(pipeline)
    batch_complete(pipeline_id=pipeline.pk, token=token(lease), breakpoint=b"2", failure="The table is gone.", rows=4)
    passed("visible_at", pipeline, EVERY)
    [again] = claimed()
    assert (again.breakpoint, again.rows, again.began_at) == ("2", 4, lease.began_at)
    assert again.last_rows == 0
    batch_complete(pipeline_id=pipeline.pk, token=token(again), breakpoint=b"3", rows=5)
    ended = InputLease.objects.get(pipeline=pipeline)
    assert (ended.last_began_at, ended.last_rows, ended.rows, ended.began_at) == (lease.began_at, 9, 0, None)
    assert (ended.failure, ended.failing_since) == ("", None)


def test_a_heartbeat_keeps_the_breakpoint_for_whoever_reads_next() -> None:
    pipeline = batching()
    [lease] = claimed()
    held = (pipeline.pk, token(lease))
    leases_renew([held], {held[1]: Progress(b'{"id": 7}', rows=7, estimate=20)})
    leases_renew([held], {held[1]: Progress(rows=9)})
    passed("locked_until", pipeline, LOCK)
    [successor] = claimed()
    assert (successor.breakpoint, successor.rows, successor.estimate) == ('{"id": 7}', 9, 20)
    # The former reader still runs, and has come further than it could report.
    assert leases_renew([held], {held[1]: Progress(b'{"id": 99}', rows=99)}) == []
    leases_release([held], {held[1]: Progress(b'{"id": 99}', rows=99)})
    leases_renew([(pipeline.pk, token(successor))], {token(successor): Progress(b'{"id": 8}', rows=1, estimate=13)})
    current = InputLease.objects.get(pipeline=pipeline)
    assert (current.breakpoint, current.rows, current.estimate) == ('{"id": 8}', 10, 22)
    assert current.token == successor.token


def test_a_heartbeat_with_a_breakpoint_that_is_no_json_renews_the_others_only() -> None:
    first, second = batching() and batching() and claimed()
    held = [(lease.pipeline_id, token(lease)) for lease in (first, second)]
    progress = {token(first): Progress(b"{", rows=1), token(second): Progress(b"2", rows=2)}
    assert leases_renew(held, progress) == [second]
    assert InputLease.objects.get(pk=first.pk).breakpoint == ""
    assert InputLease.objects.get(pk=second.pk).breakpoint == "2"


def test_what_a_paused_reader_has_read_is_recorded_and_a_returned_lease_is_free() -> None:
    pipeline = batching()
    actor = factories.admin_of(pipeline.workspace)
    [lease] = claimed()
    held = (pipeline.pk, token(lease))
    pipeline_pause(pipeline=pipeline, actor=actor)
    assert leases_renew([held], {held[1]: Progress(b"3", rows=3)}) == []
    leases_release([held], {held[1]: Progress(b"4", rows=4)})
    assert claimed() == []
    pipeline_resume(pipeline=pipeline, actor=actor)
    [again] = claimed()
    assert (again.breakpoint, again.rows) == ("4", 4)


def test_a_batch_that_makes_progress_is_kept_for_longer_than_half_an_hour() -> None:
    pipeline = batching()
    [lease] = claimed()
    held = (pipeline.pk, token(lease))
    for rows in (1, 2, 3):
        passed("ends_at", pipeline, LONGEST_BATCH - timedelta(seconds=5))
        [renewed] = leases_renew([held], {held[1]: Progress(rows=rows)})
        assert renewed.locked_until is not None
        assert renewed.locked_until - timezone.now() > LOCK * 0.9


def test_a_failing_stream_says_since_when() -> None:
    pipeline = streaming()
    [lease] = claimed(Reading.STREAMING)
    held = (pipeline.pk, token(lease))

    def renewed(**progress: Any) -> InputLease:
        leases_renew([held], {held[1]: Progress(**progress)})
        return InputLease.objects.get(pipeline=pipeline)

    assert renewed(rows=3, estimate=5, failure="").estimate == 5
    since = renewed(rows=3, failure="No route.").failing_since
    assert since is not None
    still = renewed(rows=3, failure="No route.")
    assert (still.failing_since, still.failure, still.estimate) == (since, "No route.", None)
    assert renewed(rows=3).failure == "No route."
    assert renewed(rows=4, failure="").failing_since is None


def test_a_breakpoint_that_is_no_json_is_refused_and_the_lease_kept() -> None:
    pipeline = batching()
    [lease] = claimed()
    for nonsense in (b"", b"{", b"\xff", b"\x00"):
        with pytest.raises(InvalidJsonError):
            batch_complete(pipeline_id=pipeline.pk, token=token(lease), breakpoint=nonsense)
    assert leases_renew([(pipeline.pk, token(lease))]) == [lease]


def test_a_silent_reader_loses_its_lease_to_another() -> None:
    pipeline = batching()
    [lost] = claimed()
    passed("locked_until", pipeline, LOCK)
    assert leases_renew([(pipeline.pk, token(lost))]) == []
    with pytest.raises(ConflictError):
        batch_complete(pipeline_id=pipeline.pk, token=token(lost), breakpoint=b"1")
    [lease] = claimed()
    assert leases_renew([(pipeline.pk, token(lost))]) == []
    with pytest.raises(ConflictError):
        batch_complete(pipeline_id=pipeline.pk, token=token(lost), breakpoint=b"1")
    assert leases_renew([(pipeline.pk, token(lease))]) == [lease]


def test_heartbeats_keep_a_batch_for_half_an_hour_at_most() -> None:
    pipeline = batching()
    [lease] = claimed()
    passed("locked_until", pipeline, LOCK / 2)
    [renewed] = leases_renew([(pipeline.pk, token(lease))])
    assert renewed.locked_until is not None
    assert renewed.locked_until - timezone.now() > LOCK * 0.9
    passed("ends_at", pipeline, LONGEST_BATCH - timedelta(seconds=5))
    [renewed] = leases_renew([(pipeline.pk, token(lease))])
    assert renewed.locked_until == renewed.ends_at


def test_a_stream_is_held_for_as_long_as_its_reader_lives() -> None:
    pipeline = streaming()
    assert claimed() == []
    [lease] = claimed(Reading.STREAMING)
    for _ in range(3):
        passed("locked_until", pipeline, LOCK / 2)
        [renewed] = leases_renew([(pipeline.pk, token(lease)), (uuid4(), uuid4())])
        assert renewed.ends_at is None
    with pytest.raises(ConflictError):
        batch_complete(pipeline_id=pipeline.pk, token=token(lease), breakpoint=b"1")


def test_a_version_with_the_same_input_leaves_its_reader_alone() -> None:
    pipeline = batching()
    [lease] = claimed()
    republished(pipeline, transforms=[{"type": "set", "path": "a", "value": 1}])
    [renewed] = leases_renew([(pipeline.pk, token(lease))])
    assert renewed.pipeline.published is not None
    assert renewed.pipeline.published.number == 2


def test_a_changed_input_takes_the_lease_and_another_source_the_breakpoint() -> None:
    pipeline = batching()
    lease = second_batch(pipeline)
    republished(pipeline, input=source_of(pipeline) | {"ordering_key": "id"})
    assert leases_renew([(pipeline.pk, token(lease))]) == []
    with pytest.raises(ConflictError):
        batch_complete(pipeline_id=pipeline.pk, token=token(lease), breakpoint=b"2")
    [lease] = claimed()
    assert lease.breakpoint == "1"
    batch_complete(pipeline_id=pipeline.pk, token=token(lease), breakpoint=b"2")
    republished(pipeline, input=source_of(pipeline) | {"options": {"file": "customers"}})
    [lease] = claimed()
    assert lease.breakpoint == ""
    batch_complete(pipeline_id=pipeline.pk, token=token(lease), breakpoint=b"3")
    other = factories.make_connector(pipeline.workspace, type="toy_lines", folder="/elsewhere")
    republished(pipeline, input=input_of(other, file="customers"))
    [lease] = claimed()
    assert lease.breakpoint == ""


def every(pipeline: Pipeline, seconds: int) -> None:
    """Publishes a version with that interval."""
    republished(pipeline, input=source_of(pipeline) | {"every_seconds": seconds})


def waits(pipeline: Pipeline) -> timedelta:
    """How long it waits between the end of the last batch and the next one."""
    lease = InputLease.objects.get(pipeline=pipeline)
    assert lease.last_ended_at is not None
    return lease.visible_at - lease.last_ended_at


def test_a_batch_is_due_an_interval_after_the_last_one_ended() -> None:
    for seconds in (1, 30, 3600, 86_400):
        pipeline = batching()
        every(pipeline, seconds)
        [lease] = claimed()
        batch_complete(pipeline_id=pipeline.pk, token=token(lease), breakpoint=b"1")
        assert waits(pipeline) == timedelta(seconds=seconds)
        passed("visible_at", pipeline, timedelta(seconds=seconds))
        [lease] = claimed()
        assert lease.breakpoint == "1"


def test_a_changed_interval_counts_for_the_wait_that_has_begun_and_keeps_the_breakpoint() -> None:
    pipeline = batching()
    [lease] = claimed()
    batch_complete(pipeline_id=pipeline.pk, token=token(lease), breakpoint=b"1")
    for seconds in (86_400, 60, 3600, 5):
        every(pipeline, seconds)
        assert waits(pipeline) == timedelta(seconds=seconds)
    for name in ("visible_at", "last_ended_at"):
        passed(name, pipeline, timedelta(seconds=6))
    [lease] = claimed()
    assert lease.breakpoint == "1"


def test_a_changed_interval_leaves_the_reader_its_lease_and_what_it_has_read() -> None:
    for pipeline, reading in ((batching(), Reading.BATCHING), (streaming(), Reading.STREAMING)):
        [lease] = claimed(reading)
        held = (pipeline.pk, token(lease))
        leases_renew([held], {held[1]: Progress(b"7", rows=7)})
        every(pipeline, 3600)
        [renewed] = leases_renew([held])
        assert (renewed.breakpoint, renewed.rows, renewed.input["every_seconds"]) == ("7", 7, 3600)
        assert renewed.pipeline.published is not None
        assert renewed.pipeline.published.number == 2


def test_a_batch_that_ends_after_its_interval_was_changed_waits_for_the_new_one() -> None:
    pipeline = batching()
    [lease] = claimed()
    every(pipeline, 600)
    batch_complete(pipeline_id=pipeline.pk, token=token(lease), breakpoint=b"1")
    assert waits(pipeline) == timedelta(seconds=600)


def test_a_first_batch_is_not_put_off_by_a_longer_interval() -> None:
    pipeline = batching()
    every(pipeline, 86_400)
    assert [lease.pipeline_id for lease in claimed()] == [pipeline.pk]


def test_a_batch_that_failed_is_offered_once_the_data_plane_knows_that_its_connector_was_saved() -> None:
    failed, other, sound = batching(), batching(), batching()
    for lease in claimed():
        failure = {"breakpoint": b"1"} if lease.pipeline_id == sound.pk else {"failure": "The password is wrong."}
        batch_complete(pipeline_id=lease.pipeline_id, token=token(lease), **failure)  # type: ignore[arg-type]
    before = {lease.pipeline_id: lease.visible_at for lease in InputLease.objects.all()}
    saved_at = timezone.now()
    for pipeline in (failed, sound):
        connector = pipeline.workspace.connectors.get(type="toy_lines")
        actor = factories.admin_of(pipeline.workspace)
        connector_update(connector=connector, actor=actor, name=connector.name, connection={"folder": "/elsewhere"})
    after = {lease.pipeline_id: lease.visible_at for lease in InputLease.objects.all()}
    assert saved_at + HEARD_AFTER <= after[failed.pk] <= timezone.now() + HEARD_AFTER
    assert [after[pipeline.pk] == before[pipeline.pk] for pipeline in (other, sound)] == [True, True]
    passed("visible_at", failed, HEARD_AFTER)
    assert [lease.pipeline_id for lease in claimed()] == [failed.pk]


def test_a_batch_that_failed_is_tried_again_soon_however_long_its_interval_is() -> None:
    for seconds, retried_after in ((86_400, RETRY_AFTER), (30, RETRY_AFTER), (2, timedelta(seconds=2))):
        pipeline = batching()
        every(pipeline, seconds)
        [lease] = claimed()
        before = timezone.now()
        batch_complete(pipeline_id=pipeline.pk, token=token(lease), failure="The table is gone.")
        failed = InputLease.objects.get(pipeline=pipeline)
        assert before + retried_after <= failed.visible_at <= timezone.now() + retried_after
        passed("visible_at", pipeline, retried_after)
        [lease] = claimed()
        batch_complete(pipeline_id=pipeline.pk, token=token(lease), breakpoint=b"1")
        assert waits(pipeline) == timedelta(seconds=seconds)


def test_a_shorter_interval_shortens_the_wait_after_a_failure_and_a_longer_one_does_not_prolong_it() -> None:
    pipeline = batching()
    [lease] = claimed()
    batch_complete(pipeline_id=pipeline.pk, token=token(lease), failure="The table is gone.")
    retried_at = InputLease.objects.get(pipeline=pipeline).visible_at
    every(pipeline, 86_400)
    assert InputLease.objects.get(pipeline=pipeline).visible_at == retried_at
    every(pipeline, 2)
    failed = InputLease.objects.get(pipeline=pipeline)
    assert failed.visible_at <= timezone.now() + timedelta(seconds=2)
    assert failed.failure == "The table is gone."


def test_a_lease_of_a_release_without_intervals_is_read_every_half_minute_and_kept() -> None:
    pipeline = batching()
    [lease] = claimed()
    stored = {name: value for name, value in lease.input.items() if name != "every_seconds"}
    InputLease.objects.filter(pipeline=pipeline).update(input=stored)
    actor = factories.admin_of(pipeline.workspace)
    pipeline_resume(pipeline=pipeline_pause(pipeline=pipeline, actor=actor), actor=actor)
    assert leases_renew([(pipeline.pk, token(lease))]) == [lease]
    InputLease.objects.filter(pipeline=pipeline).update(input=stored)
    batch_complete(pipeline_id=pipeline.pk, token=token(lease), breakpoint=b"1")
    assert waits(pipeline) == EVERY


def saved(pipeline: Pipeline, **input: Any) -> int:
    """The number of a version that is not published, with that change of the input."""
    actor = factories.admin_of(pipeline.workspace)
    newest = pipeline.versions.first()
    assert newest is not None
    config = newest.config | {"input": source_of(pipeline) | input}
    pipeline_update(pipeline=pipeline, actor=actor, name=pipeline.name, config=config)
    newest = pipeline.versions.first()
    assert newest is not None
    return newest.number


def input_change(pipeline: Pipeline, number: int, user: Any = None) -> Any:
    """As the API tells what publishing that version does."""
    client = APIClient()
    client.force_login(user or factories.admin_of(pipeline.workspace))
    return client.get(f"/api/v1/pipelines/{pipeline.pk}/versions/{number}/input-change/")


GOES_ON = {"starts_anew": False, "causes": [], "ends": False}


def test_a_changed_pace_takes_the_lease_and_keeps_the_breakpoint_and_the_last_batch() -> None:
    pipeline = batching()
    lease = second_batch(pipeline)
    number = saved(pipeline, options={"file": "orders", "at_a_time": 7})
    assert input_change(pipeline, number).json() == GOES_ON
    republished(pipeline)
    assert leases_renew([(pipeline.pk, token(lease))]) == []
    [again] = claimed()
    assert again.breakpoint == "1"
    assert (again.last_began_at, again.last_ended_at) == (lease.last_began_at, lease.last_ended_at)
    assert not AuditEntry.objects.filter(action="pipeline.read_anew").exists()


def test_what_starts_anew_is_said_before_it_is_published_and_recorded_after() -> None:
    pipeline = batching()
    second_batch(pipeline)
    number = saved(pipeline, options={"file": "customers", "at_a_time": 7})
    cause = {"path": "input.options.file", "title": "File"}
    assert input_change(pipeline, number).json() == GOES_ON | {"starts_anew": True, "causes": [cause]}
    assert InputLease.objects.get(pipeline=pipeline).breakpoint == "1"
    republished(pipeline)
    assert InputLease.objects.get(pipeline=pipeline).breakpoint == ""
    entry = AuditEntry.objects.get(action="pipeline.read_anew")
    assert (entry.object_id, entry.actor) == (str(pipeline.pk), "Headrace")
    assert entry.changes == [
        {"path": "breakpoint", "before": "1", "after": None},
        {"path": "changed", "before": None, "after": ["input.options.file"]},
    ]
    assert input_change(pipeline, number).json() == GOES_ON


def test_another_connector_is_said_to_start_anew_and_the_same_one_with_another_address_is_not() -> None:
    pipeline = batching()
    second_batch(pipeline)
    Connector.objects.filter(type="toy_lines").update(connection={"folder": "/elsewhere"})
    assert not input_change(pipeline, saved(pipeline)).json()["starts_anew"]
    other = factories.make_connector(pipeline.workspace, type="toy_lines", folder="/elsewhere")
    changed = input_change(pipeline, saved(pipeline, connector=str(other.pk))).json()
    cause = {"path": "input.connector", "title": "Connector"}
    assert changed == GOES_ON | {"starts_anew": True, "causes": [cause]}


def test_another_mode_starts_anew_and_one_that_says_what_happens_anyway_does_not() -> None:
    pipeline = read_from("toy_journal")
    lease = second_batch(pipeline)
    republished(pipeline, input=source_of(pipeline) | {"mode": "batch"})
    assert [renewed.breakpoint for renewed in leases_renew([(pipeline.pk, token(lease))])] == ["1"]
    changed = input_change(pipeline, saved(pipeline, mode="stream")).json()
    assert changed == GOES_ON | {"starts_anew": True, "causes": [{"path": "input.mode", "title": "Mode"}]}
    republished(pipeline)
    assert leases_renew([(pipeline.pk, token(lease))]) == []
    [streamed] = claimed(Reading.STREAMING)
    assert (streamed.pipeline_id, streamed.breakpoint) == (pipeline.pk, "")
    assert AuditEntry.objects.get(action="pipeline.read_anew").changes[-1]["after"] == ["input.mode"]


def test_a_stream_whose_source_keeps_the_position_starts_anew_in_batches_once_something_was_read() -> None:
    pipeline = read_from("toy_journal")
    republished(pipeline, input=source_of(pipeline) | {"mode": "stream"})
    assert not input_change(pipeline, saved(pipeline, mode="batch")).json()["starts_anew"]
    [lease] = claimed(Reading.STREAMING)
    leases_renew([(pipeline.pk, token(lease))], {token(lease): Progress(rows=2)})
    assert input_change(pipeline, saved(pipeline, mode="batch")).json()["starts_anew"]


def test_a_mode_that_the_connector_lacks_is_refused_at_its_field() -> None:
    pipeline = batching()
    with pytest.raises(ConfigError) as refused:
        saved(pipeline, mode="stream")
    assert list(refused.value.errors) == ["config.input.mode"]


def test_nothing_starts_anew_of_which_nothing_was_read() -> None:
    pipeline = batching()
    number = saved(pipeline, options={"file": "customers"})
    assert input_change(pipeline, number).json() == GOES_ON
    republished(pipeline)
    assert not AuditEntry.objects.filter(action="pipeline.read_anew").exists()


def saved_as_webhook(pipeline: Pipeline) -> int:
    """The number of a version that is not published, whose messages are posted."""
    newest = pipeline.versions.first()
    assert newest is not None
    actor, config = factories.admin_of(pipeline.workspace), newest.config | {"input": {"type": "http"}}
    pipeline_update(pipeline=pipeline, actor=actor, name=pipeline.name, config=config)
    newest = pipeline.versions.first()
    assert newest is not None
    return newest.number


def test_that_nothing_is_read_any_more_is_said_before_it_is_published_and_recorded_after() -> None:
    pipeline = batching()
    second_batch(pipeline)
    number = saved_as_webhook(pipeline)
    assert input_change(pipeline, number).json() == GOES_ON | {"ends": True}
    republished(pipeline)
    assert not InputLease.objects.exists()
    entry = AuditEntry.objects.get(action="pipeline.read_ended")
    assert entry.changes == [{"path": "breakpoint", "before": "1", "after": None}]
    assert input_change(pipeline, number).json() == GOES_ON


def test_an_input_of_which_nothing_was_read_has_no_position_to_give_up() -> None:
    pipeline = batching()
    assert input_change(pipeline, saved_as_webhook(pipeline)).json() == GOES_ON
    republished(pipeline)
    assert not AuditEntry.objects.filter(action="pipeline.read_ended").exists()


def test_only_members_are_told_and_only_of_versions_that_exist() -> None:
    pipeline = batching()
    assert input_change(pipeline, 7).status_code == 404
    assert input_change(pipeline, 1).status_code == 200
    stranger = factories.admin_of(factories.make_workspace())
    assert input_change(pipeline, 1, stranger).status_code == 404


def test_an_input_that_is_no_longer_read_has_no_lease_any_more() -> None:
    pipeline = batching()
    [lease] = claimed()
    republished(pipeline, input={"type": "http"})
    assert leases_renew([(pipeline.pk, token(lease))]) == []
    assert claimed() == []


def test_a_paused_pipeline_is_not_read_and_goes_on_where_it_was() -> None:
    pipeline = batching()
    actor = factories.admin_of(pipeline.workspace)
    lease = second_batch(pipeline)
    pipeline_pause(pipeline=pipeline, actor=actor)
    assert leases_renew([(pipeline.pk, token(lease))]) == []
    passed("locked_until", pipeline, LOCK)
    assert claimed() == []
    pipeline_resume(pipeline=pipeline, actor=actor)
    assert [lease.breakpoint for lease in claimed()] == ["1"]
    pipeline_pause(pipeline=pipeline, actor=actor)
    pipeline_delete(pipeline=pipeline, actor=actor)
    assert not InputLease.objects.exists()


def test_readers_that_ask_at_the_same_time_share_out_what_there_is() -> None:
    pipelines = {batching().pk for _ in range(12)}

    def ask(_: int) -> list[InputLease]:
        try:
            return claimed(limit=3)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as readers:
        leased = [lease.pipeline_id for leases in readers.map(ask, range(8)) for lease in leases]
    assert len(leased) == len(set(leased))
    # A reader that skips locked rows may receive fewer leases; the next claim returns the rest.
    leased += [lease.pipeline_id for lease in claimed(limit=100)]
    assert sorted(leased) == sorted(pipelines)


# -- Parts ---------------------------------------------------------------------


def split(pipeline: Pipeline, *ends: int) -> None:
    """Splits the batch that is offered into parts that end there."""
    lease = whole(pipeline)
    begins = [0, *ends[:-1]]
    parts = [(b"%d" % begin, b"%d" % end) for begin, end in zip(begins, ends, strict=True)]
    estimate = Progress(estimate=ends[-1], failure="")
    batch_split(pipeline_id=pipeline.pk, token=token(lease), parts=parts, progress=estimate)


def whole(pipeline: Pipeline) -> InputLease:
    """The lease of the whole, claimed; those of other pipelines are returned."""
    for lease in claimed():
        if lease.pipeline_id == pipeline.pk:
            found = lease
        else:
            leases_release([(lease.pipeline_id, token(lease))], {})
    return found


def part_of(pipeline: Pipeline) -> InputLease:
    """The next part that is offered of that pipeline's batch."""
    [lease] = [lease for lease in claimed() if lease.pipeline_id == pipeline.pk]
    return lease


def ended(lease: InputLease, breakpoint: bytes, rows: int = 0) -> None:
    batch_complete(pipeline_id=lease.pipeline_id, token=token(lease), breakpoint=breakpoint, rows=rows)


def input_state(pipeline: Pipeline) -> dict[str, Any]:
    """As the API tells it."""
    client = APIClient()
    client.force_login(factories.admin_of(pipeline.workspace))
    return dict(client.get(f"/api/v1/pipelines/{pipeline.pk}/input-state/").json())


def test_a_batch_that_is_split_has_a_reader_for_each_part_and_ends_with_the_last_one() -> None:
    pipeline = batching()
    split(pipeline, 10, 20, 30)
    parts = [part_of(pipeline) for _ in range(3)]
    assert claimed() == []
    assert [(part.part, part.breakpoint, part.part_end) for part in parts] == [
        (1, "0", "10"),
        (2, "10", "20"),
        (3, "20", "30"),
    ]
    assert len({part.token for part in parts}) == 3
    first, second, third = parts
    held = [(pipeline.pk, token(part)) for part in parts]
    progress = {token(first): Progress(b"4", rows=4), token(third): Progress(b"22", rows=2, failure="No route.")}
    assert leases_renew(held, progress) == parts
    shown = input_state(pipeline)
    assert (shown["state"], shown["rows"], shown["estimate"], shown["failure"]) == ("failing", 6, 30, "No route.")
    assert (shown["parts"], shown["breakpoint"], shown["next_at"]) == ({"left": 3, "total": 3}, "0", None)
    ended(second, b"20", rows=10)
    ended(third, b"30", rows=10)
    shown = input_state(pipeline)
    assert (shown["state"], shown["rows"], shown["parts"]) == ("reading", 24, {"left": 1, "total": 3})
    assert shown["last_batch"] is None
    ended(first, b"31", rows=11)
    shown = input_state(pipeline)
    assert (shown["state"], shown["rows"], shown["parts"], shown["breakpoint"]) == ("idle", 0, None, "31")
    assert (shown["last_batch"]["rows"], shown["estimate"], shown["failure"]) == (31, None, "")
    assert waits(pipeline) == EVERY
    passed("visible_at", pipeline, EVERY)
    [again] = claimed()
    assert (again.part, again.breakpoint) == (0, "31")


def test_the_lease_of_a_batch_that_is_split_is_stale() -> None:
    pipeline = batching()
    lease = whole(pipeline)
    parts = [(b"0", b"10"), (b"10", b"20")]
    batch_split(pipeline_id=pipeline.pk, token=token(lease), parts=parts)
    assert leases_renew([(pipeline.pk, token(lease))]) == []
    with pytest.raises(ConflictError):
        ended(lease, b"20")
    with pytest.raises(ConflictError):
        batch_split(pipeline_id=pipeline.pk, token=token(lease), parts=parts)
    assert InputLease.objects.filter(pipeline=pipeline).count() == 3


def test_only_a_whole_batch_is_split_and_by_whoever_holds_it() -> None:
    pipeline, other = batching(), batching()
    parts = [(b"0", b"10"), (b"10", b"20")]
    first, second = claimed()
    for stranger in ((pipeline.pk, token(second)), (other.pk, token(first)), (pipeline.pk, uuid4())):
        with pytest.raises(ConflictError):
            batch_split(pipeline_id=stranger[0], token=stranger[1], parts=parts)
        assert leases_renew([stranger]) == []
    for nonsense in ([], parts[:1], parts * 501):
        with pytest.raises(ConflictError):
            batch_split(pipeline_id=pipeline.pk, token=token(first), parts=nonsense)
    with pytest.raises(InvalidJsonError):
        batch_split(pipeline_id=pipeline.pk, token=token(first), parts=[(b"0", b"1"), (b"1", b"{")])
    assert leases_renew([(pipeline.pk, token(first))]) == [first]
    passed("locked_until", pipeline, LOCK)
    with pytest.raises(ConflictError):
        batch_split(pipeline_id=pipeline.pk, token=token(first), parts=parts)
    split(pipeline, 10, 20)
    part = part_of(pipeline)
    with pytest.raises(ConflictError):
        batch_split(pipeline_id=pipeline.pk, token=token(part), parts=parts)
    stream = streaming()
    [lease] = claimed(Reading.STREAMING)
    with pytest.raises(ConflictError):
        batch_split(pipeline_id=stream.pk, token=token(lease), parts=parts)
    assert InputLease.objects.filter(part__gt=0).count() == 2


def test_a_part_that_fails_or_whose_reader_dies_goes_on_from_where_it_was() -> None:
    pipeline = batching()
    split(pipeline, 10, 20)
    first, second = part_of(pipeline), part_of(pipeline)
    text = "The table is gone."
    batch_complete(pipeline_id=pipeline.pk, token=token(first), breakpoint=b"3", failure=text, rows=3)
    assert input_state(pipeline)["failure"] == text
    leases_renew([(pipeline.pk, token(second))], {token(second): Progress(b"14", rows=4)})
    InputLease.objects.filter(pipeline=pipeline).update(visible_at=timezone.now(), locked_until=timezone.now())
    again, once_more = part_of(pipeline), part_of(pipeline)
    assert [(one.part, one.breakpoint, one.rows) for one in (again, once_more)] == [(1, "3", 3), (2, "14", 4)]
    with pytest.raises(ConflictError):
        ended(second, b"20", rows=10)
    ended(again, b"10", rows=7)
    ended(once_more, b"20", rows=6)
    assert InputLease.objects.get(pipeline=pipeline).last_rows == 20


def test_a_paused_pipeline_stops_all_parts_and_they_go_on_in_the_middle() -> None:
    pipeline = batching()
    actor = factories.admin_of(pipeline.workspace)
    split(pipeline, 10, 20, 30)
    held = [(pipeline.pk, token(part_of(pipeline))) for _ in range(2)]
    pipeline_pause(pipeline=pipeline, actor=actor)
    progress = {one: Progress(b"%d" % position, rows=2) for (_, one), position in zip(held, (2, 12), strict=True)}
    assert leases_renew(held, progress) == []
    leases_release(held, progress)
    assert claimed() == []
    shown = input_state(pipeline)
    assert (shown["state"], shown["rows"], shown["parts"]) == ("paused", 4, {"left": 3, "total": 3})
    pipeline_resume(pipeline=pipeline, actor=actor)
    resumed = {lease.part: lease.breakpoint for lease in (part_of(pipeline) for _ in range(3))}
    assert resumed == {1: "2", 2: "12", 3: "20"}


def test_a_changed_input_takes_the_leases_of_parts_and_only_another_source_the_parts() -> None:
    pipeline = batching()
    split(pipeline, 10, 20)
    first, second = part_of(pipeline), part_of(pipeline)
    leases_renew([(pipeline.pk, token(first))], {token(first): Progress(b"4", rows=4)})
    every(pipeline, 60)
    ended(second, b"20", rows=10)
    number = saved(pipeline, options={"file": "orders", "at_a_time": 7})
    assert input_change(pipeline, number).json() == GOES_ON
    republished(pipeline)
    assert leases_renew([(pipeline.pk, token(first))]) == []
    again = part_of(pipeline)
    assert (again.breakpoint, again.part_end, again.input["options"]["at_a_time"]) == ("4", "10", 7)
    assert input_state(pipeline)["rows"] == 14
    number = saved(pipeline, options={"file": "customers"})
    assert input_change(pipeline, number).json()["starts_anew"]
    republished(pipeline)
    assert leases_renew([(pipeline.pk, token(again))]) == []
    [anew] = claimed()
    assert (anew.part, anew.parts, anew.breakpoint, anew.rows) == (0, 0, "", 0)
    assert AuditEntry.objects.filter(action="pipeline.read_anew").exists()
    leases_release([(pipeline.pk, token(anew))], {})
    split(pipeline, 10, 20)
    republished(pipeline, input={"type": "http"})
    assert not InputLease.objects.exists()


def test_other_inputs_are_read_while_many_parts_wait_and_parts_have_turns() -> None:
    pipeline = batching()
    split(pipeline, *range(10, 170, 10))
    neighbour = batching()
    turns: list[tuple[Any, int]] = []
    for _ in range(40):  # by one reader, which leaves a part after its turn
        [lease] = claimed(limit=1)
        turns.append((lease.pipeline_id, lease.part))
        if lease.pipeline_id == neighbour.pk:
            ended(lease, b"1")
            passed("visible_at", neighbour, EVERY)
        else:
            leases_release([(lease.pipeline_id, token(lease))], {})
    whole_round = [(pipeline.pk, number) for number in range(1, 17)]
    assert turns[:34] == [*whole_round, (neighbour.pk, 0)] * 2
    assert {lease.pipeline_id for lease in claimed(limit=17)} == {pipeline.pk, neighbour.pk}


def test_parts_that_end_at_the_same_time_end_the_batch_once() -> None:
    pipeline = batching()
    split(pipeline, *range(10, 90, 10))
    parts = [part_of(pipeline) for _ in range(8)]

    def end(part: InputLease) -> None:
        try:
            ended(part, part.part_end.encode(), rows=10)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as readers:
        list(readers.map(end, parts))
    lease = InputLease.objects.get(pipeline=pipeline)
    assert (lease.last_rows, lease.parts, lease.rows, lease.token) == (80, 0, 0, None)


# -- gRPC ----------------------------------------------------------------------


class Stub:
    """The service's calls, with the service token."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = ManagerStub(channel)  # type: ignore[no-untyped-call]

    async def call(self, name: str, request: Any) -> Any:
        return await getattr(self._stub, name)(request, metadata=(("authorization", f"Bearer {SERVICE_TOKEN}"),))

    async def filters(self, request: pb.ListFiltersRequest) -> list[pb.Filter]:
        pieces = self._stub.ListFilters(request, metadata=(("authorization", f"Bearer {SERVICE_TOKEN}"),))
        return [one async for piece in pieces for one in piece.filters]


@pytest.fixture
async def stub(running: RunningManager) -> AsyncIterator[Stub]:
    async with grpc.aio.insecure_channel(MANAGER_ADDRESS) as channel:
        yield Stub(channel)


async def status(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code()


async def test_a_batch_over_grpc(stub: Stub) -> None:
    pipeline = await sync_to_async(batching)()
    request = pb.LeaseInputsRequest(reading=pb.BATCHING, holder="reader", limit=5)
    [lease] = (await stub.call("LeaseInputs", request)).leases
    assert (lease.pipeline_id, lease.version, lease.breakpoint) == (str(pipeline.pk), 1, b"")
    assert 50 < lease.seconds <= 60
    held = pb.HeldLease(pipeline_id=lease.pipeline_id, token=lease.token)
    nonsense = pb.HeldLease(pipeline_id="nonsense", token="nonsense")
    renewed = await stub.call("Heartbeat", pb.HeartbeatRequest(leases=[held, nonsense]))
    assert [one.token for one in renewed.leases] == [lease.token]
    held.progress.MergeFrom(pb.Progress(breakpoint=b'{"id": 5}', rows=5, estimate=9, failure=""))
    [renewed_once_more] = (await stub.call("Heartbeat", pb.HeartbeatRequest(leases=[held]))).leases
    assert renewed_once_more.breakpoint == b'{"id": 5}'
    await stub.call("ReleaseInputs", pb.ReleaseInputsRequest(leases=[held, nonsense]))
    [lease] = (await stub.call("LeaseInputs", request)).leases
    assert lease.breakpoint == b'{"id": 5}'
    held = pb.HeldLease(pipeline_id=lease.pipeline_id, token=lease.token)
    broken = pb.CompleteBatchRequest(pipeline_id=lease.pipeline_id, token=lease.token, breakpoint=b"{")
    assert await status(stub.call("CompleteBatch", broken)) is grpc.StatusCode.INVALID_ARGUMENT
    ended = pb.CompleteBatchRequest(pipeline_id=lease.pipeline_id, token=lease.token, breakpoint=b'{"id": 7}')
    await stub.call("CompleteBatch", ended)
    assert await status(stub.call("CompleteBatch", ended)) is grpc.StatusCode.FAILED_PRECONDITION
    assert (await stub.call("Heartbeat", pb.HeartbeatRequest(leases=[held]))).leases == []
    await sync_to_async(passed)("visible_at", pipeline, EVERY)
    [lease] = (await stub.call("LeaseInputs", request)).leases
    assert lease.breakpoint == b'{"id": 7}'


async def test_a_batch_is_split_over_grpc(stub: Stub) -> None:
    pipeline = await sync_to_async(batching)()
    request = pb.LeaseInputsRequest(reading=pb.BATCHING, holder="reader", limit=5)
    [lease] = (await stub.call("LeaseInputs", request)).leases
    assert lease.ends_at == b""
    held = pb.HeldLease(pipeline_id=lease.pipeline_id, token=lease.token, progress=pb.Progress(estimate=20))
    parts = [pb.BatchPart(begins_at=b"0", ends_at=b"[10]"), pb.BatchPart(begins_at=b"[10]", ends_at=b"{}")]
    broken = pb.SplitBatchRequest(lease=held, parts=[*parts, pb.BatchPart(begins_at=b"{")])
    assert await status(stub.call("SplitBatch", broken)) is grpc.StatusCode.INVALID_ARGUMENT
    nobody = pb.SplitBatchRequest(lease=pb.HeldLease(pipeline_id="x", token="y"), parts=parts)
    assert await status(stub.call("SplitBatch", nobody)) is grpc.StatusCode.FAILED_PRECONDITION
    whole = pb.SplitBatchRequest(lease=held, parts=parts)
    await stub.call("SplitBatch", whole)
    assert await status(stub.call("SplitBatch", whole)) is grpc.StatusCode.FAILED_PRECONDITION
    claims = [await stub.call("LeaseInputs", request) for _ in range(2)]
    first, second = [lease for claim in claims for lease in claim.leases]
    assert [(part.pipeline_id, part.breakpoint, part.ends_at) for part in (first, second)] == [
        (str(pipeline.pk), b"0", b"[10]"),
        (str(pipeline.pk), b"[10]", b"{}"),
    ]
    reports = [
        pb.HeldLease(pipeline_id=part.pipeline_id, token=part.token, progress=pb.Progress(breakpoint=at, rows=2))
        for part, at in ((first, b"[2]"), (second, b"[12]"))
    ]
    renewed = (await stub.call("Heartbeat", pb.HeartbeatRequest(leases=reports))).leases
    assert {part.token: part.breakpoint for part in renewed} == {first.token: b"[2]", second.token: b"[12]"}
    shown = await sync_to_async(input_state)(pipeline)
    assert (shown["rows"], shown["estimate"]) == (4, 20)


async def test_calls_that_make_no_sense_are_refused(stub: Stub) -> None:
    assert await status(stub.call("LeaseInputs", pb.LeaseInputsRequest(limit=1))) is grpc.StatusCode.INVALID_ARGUMENT
    nobody = pb.CompleteBatchRequest(pipeline_id="x", token="y", breakpoint=b"1")
    assert await status(stub.call("CompleteBatch", nobody)) is grpc.StatusCode.FAILED_PRECONDITION


async def test_filters_are_listed(stub: Stub) -> None:
    def make() -> list[Pipeline]:
        made = [published(input={"type": "filter", "condition": CONDITION}) for _ in range(3)]
        published()
        pipeline_pause(pipeline=made[2], actor=factories.admin_of(made[2].workspace))
        return made[:2]

    first, second = await sync_to_async(make)()
    everywhere = await stub.filters(pb.ListFiltersRequest())
    assert {one.pipeline_id for one in everywhere} == {str(first.pk), str(second.pk)}
    of_one = pb.ListFiltersRequest(workspace_id=str(second.workspace_id))
    [listed] = await stub.filters(of_one)
    assert (listed.pipeline_id, listed.workspace_id, listed.version) == (
        str(second.pk),
        str(second.workspace_id),
        1,
    )
    assert b'"country"' in listed.condition


@pytest.mark.parametrize("broken", ["version", "connector"])
def test_an_input_that_cannot_be_read_now_keeps_its_breakpoint_while_it_is_paused(broken: str) -> None:
    pipeline = batching()
    InputLease.objects.filter(pipeline=pipeline).update(breakpoint="7")
    if broken == "version":
        pipeline.versions.update(schema_version=99)
    else:
        Connector.objects.filter(type="toy_lines").update(type="gone")
    actor = factories.admin_of(pipeline.workspace)
    pipeline_pause(pipeline=pipeline, actor=actor)
    assert leases_claim(reading=Reading.BATCHING, holder="reader", limit=1) == []
    pipeline.versions.update(schema_version=PipelineConfig.schema_version)
    Connector.objects.filter(type="gone").update(type="toy_lines")
    pipeline_resume(pipeline=pipeline, actor=actor)
    [lease] = leases_claim(reading=Reading.BATCHING, holder="reader", limit=1)
    assert lease.breakpoint == "7"


def test_one_that_cannot_be_read_is_deleted_with_its_lease() -> None:
    pipeline = batching()
    pipeline.versions.update(schema_version=99)
    actor = factories.admin_of(pipeline.workspace)
    pipeline_delete(pipeline=pipeline_pause(pipeline=pipeline, actor=actor), actor=actor)
    assert not InputLease.objects.exists()
