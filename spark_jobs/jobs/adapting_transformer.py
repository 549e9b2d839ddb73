"""Adapting for pipelines with transforms: applies the steps of the version under which a message was accepted and
forwards the results, exactly once from Kafka to Kafka.

Steps may wait, mostly for external APIs. Each pipeline has a share of this lane's window for such messages; those
beyond it go through the slow lane (adapting_slow).
"""

import contextlib
from collections.abc import Iterator

from backend.api_calls.services import ApiCalls
from backend.delivery.shares import Party, Share, Window, make_room
from backend.domain import limits, routing
from backend.domain.adapting import Adaptation
from backend.domain.idle_cache import IdleCache
from backend.domain.message import Message, Redelivery
from backend.domain.reasons import Reason
from backend.domain.records import Record, dead_letter, resolved
from backend.domain.stages import ADAPTING_SLOW, ADAPTING_TRANSFORMER
from backend.domain.transforms.base import TransformError
from backend.domain.transforms.chain import Dropped, Result
from backend.manager_api.client import UnknownPipelineError
from backend.manager_api.waiting import ConfigQueue, EvictedError, WaitingConfig
from backend.resilience.gate import Gate
from backend.telemetry import events
from spark_jobs.streaming.diversion import Diversion
from spark_jobs.streaming.lane import Handler, Lane, LaneServices, Position

_MESSAGES = 100
_BYTES = 4 * 1024 * 1024
_VERSION_IDLE_SECONDS = 3600.0
_SHARE_IDLE_SECONDS = 600.0


class Transformer:
    """Compiles each pipeline version once and runs its steps."""

    def __init__(self, services: LaneServices) -> None:
        environment = services.environment
        self._config = WaitingConfig(services.config, services.recorder, "adapting")
        self._recorder = services.recorder
        self._versions: IdleCache[tuple[str, int], Adaptation] = IdleCache(_VERSION_IDLE_SECONDS)
        self._api_calls = ApiCalls(
            environment.redis_url,
            gate=Gate(environment.redis_url, rate_fraction=1 / services.slots),
            breaker=environment.breaker,
            recorder=services.recorder,
        )

    def known(self, message: Message) -> Adaptation | None:
        """The message's version, once it is compiled."""
        return self._versions.get((message.pipeline_id, message.version))

    async def version(self, message: Message) -> Adaptation:
        """Raises UnknownPipelineError, EvictedError."""
        version = self.known(message)
        if version is None:
            snapshot = await self._config.version(message)
            # Another message may have compiled it while this one waited for the configuration.
            version = self.known(message)
            if version is None:
                version = Adaptation.of(snapshot)
                self._versions[message.pipeline_id, message.version] = version
        return version

    def run(self, message: Message, version: Adaptation) -> list[Record]:
        """Runs a version none of whose steps waits."""
        message, redelivery = message.split_redelivery()
        try:
            records = self._moved(message, version, version.chain.run(message.body, message))
        except TransformError as error:
            return [self._rejected(message, error, redelivery)]
        except limits.TooLargeError as error:
            return [self._dead(message, Reason.TOO_LARGE, str(error), redelivery)]
        return self._with_outcome(records, message, redelivery)

    async def run_waiting(self, message: Message, version: Adaptation) -> list[Record]:
        redelivered = message
        message, redelivery = message.split_redelivery()
        try:
            runtime = await self._config.runtime(message)
            resources = self._api_calls.resources(message, runtime.connectors)
            results = await version.chain.run_waiting(message.body, resources, message)
            records = self._moved(message, version, results)
        except (UnknownPipelineError, EvictedError) as error:
            return [self.without_configuration(redelivered, error)]
        except TransformError as error:
            return [self._rejected(message, error, redelivery)]
        except limits.TooLargeError as error:
            return [self._dead(message, Reason.TOO_LARGE, str(error), redelivery)]
        return self._with_outcome(records, message, redelivery)

    def _rejected(self, message: Message, error: TransformError, redelivery: Redelivery | None) -> Record:
        """The dead letter of a message that a step rejected or failed on."""
        if error.step is not None:
            self._recorder.count(message.pipeline_id, events.step_dead(error.step))
        return self._dead(message, error.reason, str(error), redelivery, due=error.due, retryable=error.retryable)

    def without_configuration(self, message: Message, error: UnknownPipelineError | EvictedError) -> Record:
        plain, redelivery = message.split_redelivery()
        if isinstance(error, EvictedError):
            return self._dead(plain, error.reason, str(error), redelivery, due=error.due)
        return self._dead(plain, Reason.UNKNOWN_PIPELINE, str(error), redelivery)

    def waiting(self) -> list[ConfigQueue]:
        """What waits for its configuration."""
        return self._config.queues()

    def saturated(self, message: Message, due: float) -> Record:
        plain, redelivery = message.split_redelivery()
        text = (
            "The pipeline's slots for external calls stayed occupied while other pipelines waited; the message is "
            "redelivered automatically."
        )
        return self._dead(plain, Reason.ADAPTING_SATURATED, text, redelivery, due=due)

    async def close(self) -> None:
        await self._api_calls.close()

    def _moved(self, message: Message, version: Adaptation, results: list[Result]) -> list[Record]:
        """Raises TransformError and TooLargeError."""
        if isinstance(results, Dropped):
            self._recorder.count(message.pipeline_id, events.step_dropped(results.step))
        records = version.records(message, results)
        self._recorder.count(message.pipeline_id, events.TRANSFORMED if results else events.DROPPED)
        return records

    def _with_outcome(self, records: list[Record], message: Message, redelivery: Redelivery | None) -> list[Record]:
        """A redelivered dead letter is resolved unless it has become a dead letter again."""
        if redelivery is None:
            return records
        self._recorder.count(message.pipeline_id, events.handled_again(ADAPTING_TRANSFORMER.name, redelivery))
        return [*records, resolved(message, redelivery.dead_letter)]

    def _dead(
        self,
        message: Message,
        reason: str,
        error: str,
        redelivery: Redelivery | None,
        *,
        due: float | None = None,
        retryable: bool = False,
    ) -> Record:
        for event in events.dead_letter(ADAPTING_TRANSFORMER.name, redelivery):
            self._recorder.count(message.pipeline_id, event)
        error = error[: limits.ERROR_CHARACTERS]
        self._recorder.error(message.pipeline_id, stage="adapting", reason=reason, message=error, message_id=message.id)
        return dead_letter(
            message, stage=ADAPTING_TRANSFORMER.name, reason=reason, error=error, due=due, retryable=retryable
        )


class PipelineShares:
    """How the pipelines whose steps wait share the window of their lane."""

    def __init__(self, messages: int, bytes: int, lane: Lane) -> None:
        """No more than so many messages and bytes of a pipeline are admitted."""
        self.window = Window(lane.window, lane.window_bytes)
        self._messages = messages
        self._bytes = bytes
        self._by_pipeline: IdleCache[str, Share] = IdleCache(_SHARE_IDLE_SECONDS)

    def of(self, pipeline_id: str) -> Share:
        share = self._by_pipeline.get(pipeline_id)
        if share is None:
            share = self._by_pipeline[pipeline_id] = Share(self._messages, self._bytes, self.window)
        return share

    def all(self) -> list[Share]:
        return [share for _, share in self._by_pipeline.items()]

    def pipelines(self) -> list[str]:
        """Those with messages in the lane within the last minutes."""
        return [pipeline_id for pipeline_id, _ in self._by_pipeline.items()]

    @contextlib.contextmanager
    def admitted(self, share: Share, size: int) -> Iterator[None]:
        """While a message that has room is processed."""
        self.window.acquire(size)
        try:
            yield
        finally:
            self.window.release(size)
            share.end(size)


class TransformerHandler(Handler):
    """Handles messages whose steps never wait immediately; others take a slot of their pipeline's share of the window
    or, when it has none left, the slow lane."""

    def __init__(self, services: LaneServices) -> None:
        self._transformer = Transformer(services)
        self._recorder = services.recorder
        self._shares = PipelineShares(_MESSAGES, _BYTES, LANE)
        self._diversion = Diversion(
            services.environment.kafka,
            topic=routing.TRANSFORMER_SLOW,
            group=ADAPTING_SLOW.group,
            committed=services.committed,
        )

    def handle_now(self, message: Message, position: Position) -> list[Record] | None:
        version = self._transformer.known(message)
        if (
            version is None
            or version.chain.waits
            or self._diversion.is_undecided(message.pipeline_id, position)
            or self._diversion.follows(message.pipeline_id, position)
        ):
            return None
        return self._transformer.run(message, version)

    async def handle(self, message: Message, position: Position) -> list[Record]:
        with self._diversion.turn(message.pipeline_id, position) as turn_comes:
            try:
                version = await self._transformer.version(message)
            except (UnknownPipelineError, EvictedError) as error:
                return [self._transformer.without_configuration(message, error)]
            if version.chain.waits:
                await self._diversion.known(position)
            await turn_comes()
            diverted = self._diversion.follows(message.pipeline_id, position, waits=version.chain.waits)
            if not diverted and not version.chain.waits:
                return self._transformer.run(message, version)
            share, size = self._shares.of(message.pipeline_id), len(message.body)
            if diverted or not self._shares.window.leaves(0, 0) or not share.arrive_now(size):
                self._diversion.divert(message.pipeline_id, position)
                self._recorder.count(message.pipeline_id, events.DIVERTED)
                return [Record.of(routing.TRANSFORMER_SLOW, message)]
        try:
            with self._shares.admitted(share, size):
                return await self._transformer.run_waiting(message, version)
        finally:
            share.leave(size)

    def make_room(self) -> None:
        parties: list[Party] = [*self._shares.all(), *self._transformer.waiting()]
        make_room(self._shares.window, parties, is_alone=False, is_late=False)

    def assigned(self, partition: int) -> None:
        self._diversion.assigned(partition)

    async def close(self) -> None:
        await self._diversion.close()
        await self._transformer.close()


LANE = Lane(ADAPTING_TRANSFORMER, TransformerHandler, commit_seconds=0.0)
