"""How a pipeline is, and why: the one answer that lists, pages, the REST API and the live socket show."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class State(StrEnum):
    """The worst first."""

    FAILING = "failing"
    """Nothing gets through: the published version cannot run, or what it needs does not work."""
    BLOCKED = "blocked"
    """The circuit breaker of an output is open."""
    INPUT_FAILING = "input_failing"
    PAUSED = "paused"
    DEGRADED = "degraded"
    """A part of it needs somebody; the rest goes on."""
    STARTING = "starting"
    """What it needs does not work yet, and needs nobody to do so."""
    PROVISIONING = "provisioning"
    """A version waits for other systems before it is published."""
    DRAFT = "draft"
    """No version was ever published."""
    UNPUBLISHED = "unpublished"
    """The newest version is not the published one."""
    UNKNOWN = "unknown"
    """Whether messages flow cannot be asked at the moment."""
    DELIVERING = "delivering"
    IDLE = "idle"


class Action(StrEnum):
    """What helps."""

    CLOSE_BREAKER = "close_breaker"
    RESUME = "resume"
    PUBLISH = "publish"
    EDIT = "edit"
    OPEN_INPUT = "open_input"
    OPEN_DEAD_LETTERS = "open_dead_letters"
    OPEN_EXPORTS = "open_exports"
    OPEN_JOBS = "open_jobs"


@dataclass(frozen=True)
class Finding:
    """Something that is true of a pipeline."""

    reason: str
    """A sentence that names the part."""
    state: State
    action: Action | None = None
    place: str = ""
    """The output, external call or stage that it is about."""
    error: str = ""
    """The error behind it, as it was reported."""
    since: datetime | None = None
    until: datetime | None = None
    """When it changes by itself, or is tried again."""


@dataclass(frozen=True)
class Status(Finding):
    """The worst that is true of a pipeline, and what else is."""

    more: Sequence[Finding] = ()
    """The worst first."""


NOTHING_FLOWS = Finding("No message was delivered within the last two minutes.", State.IDLE)
"""There is nothing to say of the pipeline."""


@dataclass(frozen=True)
class OpenBreaker:
    """A circuit breaker that is not closed."""

    place: str
    """The output or external call that it protects."""
    is_probing: bool
    cause: str
    since: datetime | None
    until: datetime | None


@dataclass(frozen=True)
class UnstoredFiles:
    """Files of an output that could not be stored."""

    output: str
    count: int
    error: str
    since: datetime
    next_try: datetime | None
    """None when nothing is tried any more until somebody asks for it."""


@dataclass(frozen=True)
class GatheredMessages:
    """Messages that wait for the files that they will be in."""

    count: int
    due: datetime | None
    """When the next of the files is complete at the latest; None when only its size decides."""


@dataclass(frozen=True)
class Letters:
    """Open dead letters, without those that only wait for a rate limit."""

    count: int
    since: datetime
    error: str
    """The latest error of their most frequent reason."""


@dataclass(frozen=True)
class Provisioning:
    """The newest one, unless it has ended well."""

    version: int
    has_failed: bool
    cause: str
    since: datetime


@dataclass(frozen=True)
class Traffic:
    """What became of messages in the last two minutes. One that is staged for a file is delivered."""

    delivered: int
    failed: int


@dataclass(frozen=True)
class Facts:
    """All that is known of a pipeline; ``traffic`` is None while that cannot be asked."""

    newest: int
    published: int | None
    traffic: Traffic | None
    paused: bool = False
    failure: str = ""
    """Why the published version cannot run."""
    draft_failure: str = ""
    """Why the newest version, which is not published, cannot be read."""
    provisioning: Provisioning | None = None
    warnings: Sequence[str] = ()
    """What endangers what was made for it in other systems."""
    input_failure: str = ""
    input_failing_since: datetime | None = None
    breakers: Sequence[OpenBreaker] = ()
    unstored: Sequence[UnstoredFiles] = ()
    gathered: GatheredMessages | None = None
    letters: Letters | None = None
    stages: Mapping[str, str] = field(default_factory=dict)
    """The stages that it needs and that do not work, each with the reason."""
    starting: Sequence[str] = ()
    """The stages that it needs and that begin to work."""
    unseen: Sequence[str] = ()
    """The stages that it needs and of which nothing is known yet, since the platform itself starts."""


def status_of(facts: Facts) -> Status:
    """Without any trouble, whether messages flow."""
    found = [*_of_the_version(facts), *_of_running(facts)] or [_flow(facts.traffic, facts.gathered)]
    order = list(State)
    worst, *more = sorted(found, key=lambda finding: order.index(finding.state))
    return Status(**vars(worst), more=more)


def _of_the_version(facts: Facts) -> Iterator[Finding]:
    if facts.failure:
        yield Finding("The published version cannot run.", State.FAILING, Action.EDIT, error=facts.failure)
    if facts.draft_failure:
        yield Finding(
            f"Version {facts.newest}, which is not published, cannot be read: edit and save the pipeline, or return to "
            "an earlier version.",
            State.DEGRADED,
            Action.EDIT,
            error=facts.draft_failure,
        )
    provisioning = facts.provisioning
    if provisioning is not None and not provisioning.has_failed:
        yield Finding(
            f"Version {provisioning.version} waits for other systems before it is published.",
            State.PROVISIONING,
            since=provisioning.since,
        )
        return
    if provisioning is not None:
        state = State.FAILING if facts.published is None else State.DEGRADED
        yield Finding(
            f"Version {provisioning.version} could not be published.",
            state,
            Action.EDIT,
            error=provisioning.cause,
            since=provisioning.since,
        )
    publish = None if facts.draft_failure else Action.PUBLISH
    if facts.published is None:
        yield Finding("No version has been published yet.", State.DRAFT, publish)
    elif facts.published != facts.newest:
        yield Finding(
            f"Version {facts.newest} is not published; version {facts.published} runs.",
            State.UNPUBLISHED,
            publish,
        )


def _of_running(facts: Facts) -> Iterator[Finding]:
    if facts.paused:
        yield Finding("The pipeline is paused and accepts no messages.", State.PAUSED, Action.RESUME)
    elif facts.input_failure:
        since = facts.input_failing_since
        yield Finding(
            "The input cannot be read.", State.INPUT_FAILING, Action.OPEN_INPUT, error=facts.input_failure, since=since
        )
    for stage, problem in facts.stages.items():
        yield Finding(
            f"The stage {stage} does not work; its messages wait.",
            State.FAILING,
            Action.OPEN_JOBS,
            place=stage,
            error=problem,
        )
    for stage in facts.starting:
        yield Finding(f"The stage {stage} starts; its messages wait.", State.STARTING, place=stage)
    for stage in facts.unseen:
        yield Finding(
            f"The console has just started; whether the stage {stage} works is known in a moment.",
            State.STARTING,
            place=stage,
        )
    yield from map(_of_breaker, facts.breakers)
    yield from map(_of_files, facts.unstored)
    if facts.letters is not None:
        yield _of_letters(facts.letters, fails_all=_fails_all(facts))
    for warning in facts.warnings:
        yield Finding("What was made for it in another system is at risk.", State.DEGRADED, error=warning)


def _of_breaker(breaker: OpenBreaker) -> Finding:
    if breaker.is_probing:
        return Finding(
            f"A message probes whether {breaker.place} works again.",
            State.DEGRADED,
            Action.CLOSE_BREAKER,
            breaker.place,
            breaker.cause,
            breaker.since,
        )
    return Finding(
        f"Nothing is sent to {breaker.place}: its circuit breaker is open.",
        State.BLOCKED,
        Action.CLOSE_BREAKER,
        breaker.place,
        breaker.cause,
        breaker.since,
        breaker.until,
    )


def _of_files(files: UnstoredFiles) -> Finding:
    return Finding(
        f"Files of the output {files.output} that could not be stored: {files.count}.",
        State.DEGRADED,
        Action.OPEN_EXPORTS,
        files.output,
        files.error,
        files.since,
        until=files.next_try,
    )


def _of_letters(letters: Letters, *, fails_all: bool) -> Finding:
    if fails_all:
        return Finding(
            f"No message was delivered in the last two minutes; dead letters: {letters.count}.",
            State.FAILING,
            Action.OPEN_DEAD_LETTERS,
            error=letters.error,
            since=letters.since,
        )
    return Finding(
        f"Dead letters that wait for redelivery or a decision: {letters.count}.",
        State.DEGRADED,
        Action.OPEN_DEAD_LETTERS,
        error=letters.error,
        since=letters.since,
    )


def _fails_all(facts: Facts) -> bool:
    """An open breaker says more about why nothing is delivered."""
    traffic = facts.traffic
    return not facts.breakers and traffic is not None and traffic.failed > 0 and traffic.delivered == 0


def _flow(traffic: Traffic | None, gathered: GatheredMessages | None) -> Finding:
    if traffic is None:
        return Finding("Redis does not answer, so that it is unknown whether messages flow.", State.UNKNOWN)
    if traffic.delivered:
        return Finding("Messages were delivered within the last two minutes.", State.DELIVERING)
    if gathered is not None:
        reason = f"Messages wait for their file: {gathered.count}."
        return Finding(reason, State.IDLE, Action.OPEN_EXPORTS, until=gathered.due)
    return NOTHING_FLOWS
