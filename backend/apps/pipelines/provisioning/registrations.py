"""What connectors make in other systems for a pipeline's uses of them (``backend.domain.capabilities.Register``)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from backend.apps.connectors.models import Connector
from backend.apps.connectors.secret_store import runtime_connector
from backend.apps.pipelines.models import Pipeline, Registration
from backend.domain.capabilities import DeliveryError, Register, RegistrationState, internal_error
from backend.domain.connector import RuntimeConnector, connectors
from backend.domain.masking import dotted
from backend.domain.model import UnreadableConfigError
from backend.domain.pipeline import PipelineConfig
from backend.domain.reasons import Reason
from backend.domain.registry import UnknownComponentError
from backend.domain.uses import PlacedUse, Use, bind
from backend.network.threads import run_with_limit

log = logging.getLogger(__name__)

_CALL_SECONDS = 30.0
_STATE_SECONDS = 15.0
_CLOSE_SECONDS = 5.0
_CALLS = 10
"""Registrations whose state is asked for at the same time."""
_LANES_HOLD = timedelta(minutes=5)
"""How long lanes may still hold messages for an output that is no longer published."""
_LONGEST_WAIT = timedelta(hours=1)


class RegistrationFailedError(Exception):
    """``field`` is the pipeline's field that is to blame. ``final`` means a retry is useless."""

    def __init__(self, message: str, field: str, *, final: bool) -> None:
        super().__init__(message)
        self.field = field
        self.final = final


def registered_uses(config: PipelineConfig) -> Iterator[PlacedUse]:
    """The uses that need something in their connector's system."""
    used = Connector.objects.in_bulk(config.connectors)
    for placed in config.uses():
        connector = used.get(placed.use.connector)
        if connector is None:
            continue
        try:
            type = connectors.get(connector.type)
        except UnknownComponentError:
            continue
        if placed.use.register_of(type) is not None:
            yield placed


def registrations_claim(*, pipeline: Pipeline, config: PipelineConfig) -> list[str]:
    """Notes, before anything is made, that a version needs it, so that whatever is made can be removed. Returns the
    places of the uses."""
    placed = list(registered_uses(config))
    for _, use in placed:
        Registration.objects.update_or_create(
            pipeline_id=pipeline.pk,
            connector_id=use.connector,
            place=use.place,
            defaults={"remove_at": None, "attempts": 0, "error": ""},
            create_defaults={"workspace": pipeline.workspace, **_stored_options(use)},
        )
    return [use.place for _, use in placed]


def registration_make(*, pipeline_id: UUID, config: PipelineConfig, place: str) -> dict[str, Any]:
    """Makes what the use at that place needs, or adapts it to its options. Called in a transaction. Raises
    RegistrationFailedError."""
    path, use = next(placed for placed in registered_uses(config) if placed.use.place == place)
    registration = _locked().get(pipeline_id=pipeline_id, connector_id=use.connector, place=place)
    for name, value in _stored_options(use).items():
        setattr(registration, name, value)
    try:
        registration.made = _call(
            registration, lambda register: register.register(registration.name, _made(registration))
        )
    except DeliveryError as error:
        at = ("config", *path, "options", error.option) if error.option else ("config", *path, "connector")
        raise RegistrationFailedError(str(error), dotted(at), final=not error.retryable) from None
    registration.save()
    return registration.made or {}


def registration_undo(*, pipeline: Pipeline, place: str) -> None:
    """After a version could not be published: as the published one needs it. Raises RegistrationFailedError."""
    published = _published_config(pipeline)
    if published is not None and place in {placed.use.place for placed in registered_uses(published)}:
        registration_make(pipeline_id=pipeline.pk, config=published, place=place)
    registrations_release(pipeline_id=pipeline.pk, config=published)


def registrations_release(*, pipeline_id: UUID, config: PipelineConfig | None) -> None:
    """Schedules the removal of what the configuration does not need; None needs nothing."""
    needed = {(use.connector, use.place) for _, use in registered_uses(config)} if config is not None else set()
    now = timezone.now()
    for registration in Registration.objects.filter(pipeline_id=pipeline_id, remove_at=None):
        if (registration.connector_id, registration.place) not in needed:
            hold = timedelta() if registration.place == "input" else _LANES_HOLD
            Registration.objects.filter(pk=registration.pk).update(remove_at=now + hold, warning="")


def registrations_remove() -> None:
    """Removes what is due; failures are retried with exponential back-off, until the other system has answered."""
    due = Registration.objects.filter(remove_at__lte=timezone.now())
    for pk in list(due.values_list("pk", flat=True)):
        with transaction.atomic():
            registration = _locked(skip_locked=True).filter(pk=pk, remove_at__lte=timezone.now()).first()
            if registration is not None:
                _remove(registration)


def registrations_watch() -> None:
    """Records how each registration is, and what endangers it."""
    watched = list(
        Registration.objects.filter(remove_at=None, made__isnull=False).select_related("connector__workspace")
    )
    runtimes = [runtime_connector(registration.connector) for registration in watched]
    with ThreadPoolExecutor(_CALLS, "registration") as threads:
        states = list(threads.map(_state, watched, runtimes))
    for registration, state in zip(watched, states, strict=True):
        if (state.warning, state.measures) != (registration.warning, registration.measures):
            current = Registration.objects.filter(pk=registration.pk, remove_at=None)
            current.update(warning=state.warning, measures=state.measures)


def registered(*, pipeline_id: UUID, connector_id: UUID) -> dict[str, dict[str, Any]]:
    """What was made in a connector's system for a pipeline, by the places of the uses."""
    registrations = Registration.objects.filter(pipeline_id=pipeline_id, connector_id=connector_id)
    return {registration.place: registration.made for registration in registrations if registration.made is not None}


def _remove(registration: Registration) -> None:
    try:
        _call(registration, lambda register: register.unregister(registration.name, _made(registration)))
    except DeliveryError as error:
        registration.attempts += 1
        registration.error = str(error)
        registration.remove_at = timezone.now() + removal_wait(registration.attempts)
        registration.save()
        return
    registration.delete()


def removal_wait(attempts: int) -> timedelta:
    """How long a removal waits after that many attempts."""
    return min(timedelta(seconds=2 ** min(attempts, 12)), _LONGEST_WAIT)


def lanes_hold_until() -> datetime:
    """When no lane holds messages any more of what is no longer published now."""
    return timezone.now() + _LANES_HOLD


def _locked(*, skip_locked: bool = False) -> Any:
    rows = Registration.objects.select_related("connector__workspace")
    return rows.select_for_update(of=("self",), skip_locked=skip_locked)


def _stored_options(use: Use) -> dict[str, Any]:
    """The use's options with the version of their schema, by the fields of a registration."""
    register = connectors.get(Connector.objects.get(pk=use.connector).type).capability(Register)
    assert register is not None
    return {"options": use.options, "options_version": register.options_model.schema_version}


def _made(registration: Registration) -> dict[str, Any]:
    return registration.made or {}


def _published_config(pipeline: Pipeline) -> PipelineConfig | None:
    """None when nothing is published, or nothing that can run."""
    if pipeline.published is None:
        return None
    try:
        return pipeline.published.load()
    except UnreadableConfigError:
        return None


def _call(registration: Registration, call: Callable[[Register[Any, Any]], Awaitable[Any]]) -> Any:
    """Raises DeliveryError."""
    return _limited_call(runtime_connector(registration.connector), registration, call, _CALL_SECONDS)


def _state(registration: Registration, runtime: RuntimeConnector) -> RegistrationState:
    try:
        answer: RegistrationState = _limited_call(
            runtime,
            registration,
            lambda register: register.state(registration.name, _made(registration)),
            _STATE_SECONDS,
        )
        return answer
    except DeliveryError as error:
        return RegistrationState(str(error))


def _limited_call(
    runtime: RuntimeConnector,
    registration: Registration,
    call: Callable[[Register[Any, Any]], Awaitable[Any]],
    seconds: float,
) -> Any:
    """Returns whatever the connector does, even when it waits for a thread that hangs. Raises DeliveryError."""
    work = _bound_call(runtime, registration, call, seconds)
    try:
        return run_with_limit(work, seconds + _CLOSE_SECONDS, f"A call of Register to {runtime.type}")
    except TimeoutError:
        raise _no_answer(seconds) from None


def _no_answer(seconds: float) -> DeliveryError:
    text = f"The other system did not answer within {seconds:g} seconds."
    return DeliveryError(Reason.TIMEOUT, text, retryable=True)


async def _bound_call(
    runtime: RuntimeConnector,
    registration: Registration,
    call: Callable[[Register[Any, Any]], Awaitable[Any]],
    seconds: float,
) -> Any:
    bound = bind(
        runtime,
        registration.options,
        lambda type: type.capability(Register),
        Register.purpose,
        registration.options_version,
    )
    try:
        async with asyncio.timeout(seconds):
            await bound.open()
            return await call(bound)
    except TimeoutError:
        raise _no_answer(seconds) from None
    except DeliveryError as error:
        raise error.without(bound.secrets()) from None
    except Exception as error:
        log.exception("A call of Register to %s failed unexpectedly.", runtime.type)
        raise internal_error(error) from None
    finally:
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await bound.close()
        except Exception:
            log.exception("A connection to %s could not be closed.", runtime.type)
