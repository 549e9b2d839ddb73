"""The life of an export: its writer claims it, reports each step, and completes it; people retry and abort it.

A writer sends a heartbeat every few seconds. The token is a fencing token: every report presents it, and that of a
writer which lost its export is rejected.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from backend.apps.audit.services import audit_record
from backend.apps.connectors.models import Connector
from backend.apps.connectors.signals import HEARD_AFTER
from backend.apps.exports.forming import exports_form, name_file, target_of
from backend.apps.exports.models import Export
from backend.apps.exports.selectors import OPEN
from backend.apps.exports.staging import parts_release
from backend.apps.pipelines.models import Pipeline
from backend.apps.workspaces.models import User
from backend.domain.errors import ConflictError
from backend.domain.model import UnreadableConfigError

LOCK = timedelta(seconds=60)
"""A writer without a heartbeat for this long loses its export."""
_UPLOADS = 100
"""Left uploads that are handed out at once."""
_FIRST_RETRY_SECONDS = 10
_LONGEST_RETRY_SECONDS = 600

Held = tuple[UUID, UUID, int]
"""An export, the token of its writer, and the rows written so far."""


def export_claim(*, holder: str) -> Export | None:
    """Something to write, or the remains of an aborted upload to remove. Forms files first.

    The files of an output are written one after the other, in the order of their numbers; only one that failed for
    good does not hold back those after it.
    """
    exports_form()
    now = timezone.now()
    free = Q(locked_until=None) | Q(locked_until__lte=now)
    with transaction.atomic():
        before = Export.objects.filter(
            pipeline_id=OuterRef("pipeline_id"),
            output=OuterRef("output"),
            number__lt=OuterRef("number"),
            state__in=OPEN,
            due_at__isnull=False,
        )
        due = Export.objects.filter(free, due_at__lte=now).filter(~Exists(before) | Q(state=Export.State.ABORTED))
        export = due.order_by("due_at").select_for_update(of=("self",), skip_locked=True).first()
        if export is None:
            return None
        if export.state != Export.State.ABORTED:
            export.state = Export.State.WRITING
        export.holder, export.token, export.locked_until, export.written_rows = holder, uuid4(), now + LOCK, 0
        export.save()
    return export


def exports_renew(held: Iterable[Held]) -> list[UUID]:
    """Those that the caller still holds, for another minute."""
    now = timezone.now()
    return [
        pk
        for pk, token, rows in held
        if Export.objects.filter(pk=pk, token=token, locked_until__gt=now).update(
            locked_until=now + LOCK, written_rows=rows
        )
    ]


def export_record_upload(*, export_id: UUID, token: UUID, upload: Any) -> None:
    """What the store calls the upload that has begun, so that another writer can remove it; None once it is removed.
    Raises ConflictError."""
    _update(export_id, token, upload=upload)


def export_record_manifest(*, export_id: UUID, token: UUID, manifest: dict[str, Any], preview: Any) -> None:
    """Everything is written; from now on the file may become visible. Raises ConflictError."""
    _update(export_id, token, manifest=manifest, preview=preview, written_rows=manifest["rows"])


def export_complete(*, export_id: UUID, token: UUID) -> None:
    """The file is visible, or the remains of an aborted upload are removed. Raises ConflictError."""
    with transaction.atomic():
        export = _held(export_id, token)
        if export.state != Export.State.ABORTED:
            export.state = Export.State.COMMITTED
            export.committed_at = export.closed_at = timezone.now()
            export.reason = export.error = ""
            parts_release(export.slices)
            export.slices = []
        export.upload = export.due_at = None
        _free(export)


def export_fail(*, export_id: UUID, token: UUID, reason: str, error: str, retryable: bool) -> None:
    """Raises ConflictError."""
    with transaction.atomic():
        export = _held(export_id, token)
        export.reason, export.error = reason[:100], error.replace("\0", "")[:2000]
        export.failures += 1
        seconds = min(_FIRST_RETRY_SECONDS * 2 ** min(export.failures - 1, 10), _LONGEST_RETRY_SECONDS)
        export.due_at = timezone.now() + timedelta(seconds=seconds) if retryable else None
        if export.state != Export.State.ABORTED:
            export.state = Export.State.FAILED
        _free(export)


def uploads_left(connector_id: UUID) -> list[tuple[UUID, Any]]:
    """Uploads to the connector that exports have begun and will not go on with, by the exports: they failed or were
    aborted for good, and their pipeline may have been deleted, so that nobody else can remove them."""
    left = Export.objects.filter(_left(), connector_id=connector_id, upload__isnull=False)
    return list(left.values_list("pk", "upload")[:_UPLOADS])


def upload_forget(export_id: UUID, upload: Any) -> None:
    """Such an upload is removed, unless the export has begun another one meanwhile."""
    Export.objects.filter(_left(), pk=export_id, upload=upload).update(upload=None)


def uploads_unknown(uploads: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that no export will go on with. Of each as much is given as identifies it."""
    used = Export.objects.filter(~_left())
    return [upload for upload in uploads if not used.filter(upload__contains=upload).exists()]


def _left() -> Q:
    """Exports that nobody works on, now or later, unless a person has them written anew."""
    return Q(due_at=None) & (Q(locked_until=None) | Q(locked_until__lte=timezone.now()))


def exports_offer_failed(*, connector: Connector, **_: Any) -> None:
    """Exports that wait after a failure are written soon, since their connector has changed: its former password may
    have been the reason."""
    soon = timezone.now() + HEARD_AFTER
    Export.objects.filter(connector_id=connector.pk, due_at__gt=soon).update(due_at=soon)


def export_retry(*, export: Export, actor: User, use_current_version: bool) -> Export:
    """Writes a failed or aborted file now, if asked to by the version that is published now. Raises ConflictError."""
    with transaction.atomic():
        export = Export.objects.select_for_update().get(pk=export.pk)
        if export.state not in (Export.State.FAILED, Export.State.ABORTED):
            raise ConflictError("Only a failed or an aborted export can be retried.")
        if _is_locked(export):
            raise ConflictError("What was written of this export is being removed. Try again in a moment.")
        if not export.can_be_written:
            raise ConflictError("The staged messages of this aborted export are not kept any more.")
        if use_current_version:
            _use_current_version(export)
        elif export.connector_id is None:
            raise ConflictError("Its pipeline was deleted, so that nobody knows where the file should go.")
        if export.due_at is None:
            export.manifest = None  # the store refused it: begins anew, under the same name
        before = {"state": export.state, "version": export.version}
        export.state, export.failures, export.due_at, export.closed_at = Export.State.STAGED, 0, timezone.now(), None
        export.save()
        _audit("exports.retry", export, actor, before)
    return export


def export_abort(*, export: Export, actor: User) -> Export:
    """Stops it and removes what was written. Its staged messages are kept for some days, in which it can be retried.
    Raises ConflictError."""
    with transaction.atomic():
        export = Export.objects.select_for_update().get(pk=export.pk)
        if export.state in (Export.State.COMMITTED, Export.State.ABORTED):
            raise ConflictError(f"This export is {export.state} already.")
        if export.state == Export.State.WRITING and export.manifest is not None and _is_locked(export):
            raise ConflictError("The file is being made visible now, which cannot be stopped.")
        before = {"state": export.state}
        export.state, export.closed_at = Export.State.ABORTED, timezone.now()
        export.manifest = None
        # Somebody has to remove what was written.
        export.due_at = timezone.now() if export.upload is not None else None
        _free(export)
        _audit("exports.abort", export, actor, before)
    return export


def exports_close(*, pipeline: Pipeline, output: str, actor: User) -> list[Export]:
    """Makes a file of everything that is staged for the output now."""
    with transaction.atomic():
        made = exports_form(only=(pipeline.pk, output))
        audit_record(
            action="exports.close",
            actor=actor,
            workspace=pipeline.workspace_id,
            target=pipeline,
            after={"output": output, "files": len(made)},
        )
    return made


def _use_current_version(export: Export) -> None:
    if export.manifest is not None:
        raise ConflictError("The file may be visible already, so it can only be retried with its own version.")
    pipeline = Pipeline.objects.select_related("published").filter(pk=export.pipeline_id).first()
    if pipeline is None or pipeline.published is None:
        raise ConflictError("The pipeline has no published version.")
    try:
        target = target_of(pipeline.pk, export.output, pipeline.published.number)
    except (LookupError, UnreadableConfigError):
        target = None
    if target is None:
        raise ConflictError(f"The published version has no output {export.output}.")
    export.version, export.connector_id = pipeline.published.number, target.connector_id
    name_file(export, pipeline, target.policy)


def _update(export_id: UUID, token: UUID, **changes: Any) -> None:
    with transaction.atomic():
        export = _held(export_id, token)
        for name, value in changes.items():
            setattr(export, name, value)
        export.save(update_fields=list(changes))


def _held(export_id: UUID, token: UUID) -> Export:
    held = Export.objects.select_for_update().filter(pk=export_id, token=token, locked_until__gt=timezone.now()).first()
    if held is None:
        raise ConflictError("The export is lost: it was aborted, or its lease ran out and another task writes it.")
    return held


def _is_locked(export: Export) -> bool:
    return export.locked_until is not None and export.locked_until > timezone.now()


def _free(export: Export) -> None:
    export.token, export.holder, export.locked_until = None, "", None
    export.save()


def _audit(action: str, export: Export, actor: User, before: dict[str, Any]) -> None:
    audit_record(
        action=action,
        actor=actor,
        workspace=export.workspace_id,
        before=before,
        after={"state": export.state, "version": export.version, "file": export.path},
    )
