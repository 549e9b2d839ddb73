"""Whether messages wait for stages that nothing else needs: dead letters that are redelivered, and what was on its way
when a pipeline was unpublished."""

import logging
import threading
from collections.abc import Collection, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from backend.domain.stages import Stage
from backend.kafka.client.ends import end_offsets
from backend.kafka.client.positions import Part, Positions
from backend.settings import KafkaSettings

log = logging.getLogger("spark_jobs")

_LOOK_SECONDS = 3.0


class Unhandled:
    """Compares the ends of topics with the positions of their stages. Used by one thread."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._admin = AdminClient({**kafka.client(), "log_level": 0})
        self._positions = Positions(kafka)
        self._empty: dict[Stage, dict[Part, int]] = {}
        """The ends up to which a stage has handled everything, so that no group is asked again before they change."""

    def look(self, stages: Collection[Stage]) -> dict[Stage, bool]:
        """Whether messages wait for each of these stages, which have topics; a stage of which Kafka does not say it in
        time is left out. Raises KafkaException."""
        ends = end_offsets(self._admin, {stage.topic for stage in stages if stage.topic})
        answers = {}
        for stage in stages:
            answer = self._waits(stage, {part: end for part, end in ends.items() if part[0] == stage.topic})
            if answer is not None:
                answers[stage] = answer
        return answers

    def close(self) -> None:
        self._positions.close()

    def _waits(self, stage: Stage, ends: dict[Part, int]) -> bool | None:
        if not ends or self._empty.get(stage) == ends:
            return False
        positions = self._positions.committed(stage.group, ends)
        read = [self._positions.is_read(part, positions.get(part, 0), end) for part, end in ends.items()]
        if False in read:
            return True
        if None in read:
            return None
        self._empty[stage] = ends
        return False


class UnhandledWatch:
    """Looks every few seconds, in a thread of its own: the driver reports itself also while Kafka does not answer."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self.found: Mapping[Stage, bool] = {}
        """Whether messages wait for the stages that are watched; without those of which that is unknown."""
        self._kafka = kafka
        self._watched: frozenset[Stage] = frozenset()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="unhandled", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def watch(self, stages: Collection[Stage]) -> None:
        """Looks at these stages from now on, and no others."""
        self._watched = frozenset(stages)

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        unhandled = Unhandled(self._kafka)
        while not self._stopped.is_set():
            watched = self._watched
            try:
                self.found = unhandled.look(watched) if watched else {}
            except KafkaException as error:
                log.warning("Whether messages wait for stages that rest is unknown: %s", error.args[0].str())
                self.found = {}
            except Exception:
                log.exception("Looking for messages that wait for stages that rest failed.")
                self.found = {}
            self._stopped.wait(_LOOK_SECONDS)
        unhandled.close()
