"""The stages of one application: those that are wanted are started, watched, and stopped, as many as there are task
slots for."""

import functools
import logging
import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from backend.domain.demand import Demand, StageState
from backend.domain.stages import BROKEN, Form, Stage, task_slots
from backend.kafka.client.topics import partitions_of
from backend.manager_api.jobs import Loss
from backend.settings import Settings, platform_settings
from spark_jobs.jobs import module_of
from spark_jobs.reporting import Reporter
from spark_jobs.running_stage import Driver, RunningStage
from spark_jobs.stage_demand import StageDemand
from spark_jobs.stage_slots import Need, plan
from spark_jobs.streaming.input_lane import run_input_slot
from spark_jobs.streaming.kept_running import LaneSlot
from spark_jobs.streaming.lane_task import run_slot
from spark_jobs.streaming.stop_channel import StopChannel
from spark_jobs.unhandled import UnhandledWatch

log = logging.getLogger("spark_jobs")

_KAFKA_SECONDS = 10.0
_EXECUTORS_SECONDS = 60.0
_START_SECONDS = 30.0
_SETTLE_SECONDS = 30.0
"""An executor that is lost has usually been replaced by then."""
_ON_DRIVER: Final = (Form.QUERY, Form.SQL)
"""The forms whose modules are started on the driver; of the others, it starts tasks."""


class StartError(Exception):
    """The application cannot run as configured; the message says what to change."""


@dataclass(frozen=True)
class Options:
    """How the stages run: the tasks of each lane, where queries write their checkpoints, and how often."""

    lane_slots: int
    checkpoints: str
    batch_seconds: int


class RunningStages:
    """Those of the application's stages that are wanted and that there are task slots for. Used by one thread."""

    def __init__(
        self,
        spark: SparkSession,
        environment: Settings,
        stages: Iterable[Stage],
        options: Options,
        reporter: Reporter,
    ) -> None:
        """Raises StartError."""
        self._spark = spark
        self._environment = environment
        self._options = options
        self._reporter = reporter
        self._needs = [_need(environment, stage, options.lane_slots) for stage in stages]
        self._demand = StageDemand([need.stage for need in self._needs], idle_seconds=environment.stage_idle_seconds)
        self._unhandled = UnhandledWatch(environment.kafka)
        self._wanted: dict[Stage, str] = {}
        """With the reason for each."""
        self._planned: dict[Stage, int] = {}
        self._runs = False
        """Whether it has been started and is not to stop."""
        self._available = 0
        """The task slots that are planned with."""
        self._seen = 0
        self._seen_since = 0.0
        self._started: dict[Stage, RunningStage] = {}
        """Those that have been stopped as well, since their progress is of interest."""
        self._granted: dict[Stage, int] = {}
        """The slots of those that run."""
        self._ending: dict[Stage, threading.Thread] = {}
        self._start_at: dict[Stage, float] = {}
        """When those that could not be started are tried again."""

    def start(self) -> None:
        """Starts the stages that there are slots for once a cluster's executors, which register one by one, are all
        there, or after a minute."""
        deadline = time.monotonic() + _EXECUTORS_SECONDS
        while self._slots() < self._needed() and time.monotonic() < deadline and not self._is_local():
            self.report("starting")
            time.sleep(0.5)
        self._available = self._seen = self._usable()
        self._runs = True
        self._unhandled.start()
        self.adjust()

    def adjust(self) -> None:
        """Starts stages that are wanted, and stops those that are not, or that there are too few task slots for. In
        real-time mode a partition without a slot is silently never read, so no stage runs with fewer than it needs."""
        demands = self._reporter.demands
        self._unhandled.watch(self._demand.unneeded(demands))
        self._wanted = self._demand.wanted(demands, self._unhandled.found)
        self._look_at_slots()
        self._planned = plan([need for need in self._needs if need.stage in self._wanted], self._available)
        self._apply()

    def stop(self) -> None:
        """Begins to stop all of them."""
        self._runs = False
        self._unhandled.stop()
        self._planned = {}
        self._apply()

    def ended(self, seconds: float) -> bool:
        """Whether all of them have stopped, or do so within this time."""
        deadline = time.monotonic() + seconds
        for thread in self._ending.values():
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._ending.values())

    def report(self, state: str) -> None:
        problems = {stage: started.problem() for stage, started in self._started.items()}
        beats = {need.stage.name: self._beat(need.stage, problems.get(need.stage, "")) for need in self._needs}
        self._reporter.send(state, beats, " ".join(filter(None, [self._shortage(), *problems.values(), *BROKEN])))

    def _beat(self, stage: Stage, problem: str) -> dict[str, Any]:
        """For the heartbeat."""
        progress = self._started[stage].progress() if stage in self._started else {}
        demand = self._wanted.get(stage, Demand.NONE)
        return {
            "state": self._state(stage, problem),
            "demand": demand,
            "slots": self._granted.get(stage, 0),
            **progress,
        }

    def _state(self, stage: Stage, problem: str) -> StageState:
        if problem:
            return StageState.FAILING
        if stage in self._granted or stage in self._ending:
            return StageState.RUNNING
        if not self._runs:
            return StageState.STOPPED
        return StageState.WAITING if stage in self._wanted else StageState.RESTING

    def _look_at_slots(self) -> None:
        """A change of the number of task slots counts once it has lasted."""
        usable = self._usable()
        if usable != self._seen:
            self._seen, self._seen_since = usable, time.monotonic()
        if usable != self._available and time.monotonic() - self._seen_since > _SETTLE_SECONDS:
            self._available = usable

    def _apply(self) -> None:
        for stage in [stage for stage, slots in self._granted.items() if slots != self._planned.get(stage)]:
            del self._granted[stage]
            self._ending[stage] = threading.Thread(target=self._started[stage].stop, name=f"stop-{stage.name}")
            self._ending[stage].start()
        self._ending = {stage: thread for stage, thread in self._ending.items() if thread.is_alive()}
        for stage in self._start_at.keys() - self._planned.keys():
            del self._start_at[stage], self._started[stage]
        for stage, slots in self._planned.items():
            if stage not in self._granted and stage not in self._ending:
                self._start_if_due(stage, slots)

    def _start_if_due(self, stage: Stage, slots: int) -> None:
        """One that cannot be started stops no other, and is tried again later."""
        if time.monotonic() < self._start_at.get(stage, 0.0):
            return
        try:
            self._started[stage] = self._start(stage, slots)
        except Exception:
            log.exception("%s cannot be started.", stage.name)
            self._start_at[stage] = time.monotonic() + _START_SECONDS
            text = f"{stage.name} cannot be started; the application's log says why."
            self._started[stage] = RunningStage(lambda: text, dict, lambda: None)
        else:
            self._granted[stage] = slots
            self._start_at.pop(stage, None)

    def _start(self, stage: Stage, slots: int) -> RunningStage:
        if stage.form not in _ON_DRIVER:
            return _start_tasks(self._spark, stage, slots, self._reporter)
        driver = Driver(
            self._spark,
            self._environment,
            f"{self._options.checkpoints}/{stage.name}",
            self._options.batch_seconds,
            self._reporter.lost,
        )
        running: RunningStage = module_of(stage).start_stage(driver)
        return running

    def _shortage(self) -> str:
        wanted = [need for need in self._needs if need.stage in self._wanted]
        absent = [need.stage.name for need in wanted if need.stage not in self._planned]
        if not self._runs or not absent:
            return ""
        return (
            f"There are too few task slots for {', '.join(absent)}: Spark has {self._slots()}, and the stages that are "
            f"needed have use for {sum(need.most for need in wanted)} (one per lane task, and one per partition that "
            "a query reads). Give it more (HEADRACE_SPARK_MASTER)."
        )

    def _needed(self) -> int:
        """What all stages together can use."""
        return sum(need.most for need in self._needs)

    def _usable(self) -> int:
        """Spark's task slots without those that no stage has use for, whose number changes nothing."""
        return min(self._slots(), self._needed())

    def _slots(self) -> int:
        """The number of tasks that can run at the same time."""
        return self._spark.sparkContext.defaultParallelism

    def _is_local(self) -> bool:
        return (self._spark.sparkContext.master or "").startswith("local")


def _need(environment: Settings, stage: Stage, lane_slots: int) -> Need:
    """Raises StartError."""
    if stage.form is Form.SQL:
        return Need(stage, 1, 1)  # its short tasks take turns in whatever there is
    partitions = _partitions(environment, stage) if stage.form is Form.QUERY else 0
    most = task_slots(stage, partitions=partitions, lane_slots=lane_slots)
    return Need(stage, most if stage.form is Form.QUERY else 1, most)


def _partitions(environment: Settings, stage: Stage) -> int:
    """The number of partitions of the stage's topic. Raises StartError."""
    assert stage.topic is not None
    try:
        return partitions_of(AdminClient(environment.kafka.client()), stage.topic, _KAFKA_SECONDS)
    except KafkaException as error:
        raise StartError(f"Topic {stage.topic} cannot be read: {error.args[0].str()}.") from None


def _start_tasks(spark: SparkSession, stage: Stage, slots: int, reporter: Reporter) -> RunningStage:
    context = spark.sparkContext
    host = context.getConf().get("spark.driver.host", socket.gethostname())
    channel = StopChannel(host, platform_settings().service_token)
    body = functools.partial(_run_partition, stage, channel.address, slots)
    lane_slots = [LaneSlot(context, stage.name, slot, body, channel) for slot in range(slots)]

    def problem() -> str:
        for loss in channel.take_losses():
            reporter.lost(Loss(stage.name, *loss))
        return " ".join(filter(None, (slot.problem() for slot in lane_slots)))

    def stop() -> None:
        channel.stop()
        for slot in lane_slots:
            slot.cancel_unless_running()
        for slot in lane_slots:
            slot.join()
        channel.close()

    return RunningStage(problem, dict, stop)


def _run_partition(stage: Stage, stop_address: tuple[str, int], slots: int, partition: Iterable[int]) -> None:
    environment = platform_settings()
    for slot in partition:
        if stage.form is Form.INPUT:
            run_input_slot(stage, environment, stop_address, slot)
        elif stage.form is Form.STORE:
            module_of(stage).run_slot(environment, stop_address, slot)
        else:
            run_slot(module_of(stage).LANE, environment, stop_address, slot, slots)
