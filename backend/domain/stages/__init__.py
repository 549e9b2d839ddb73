"""The stages: what each reads, what may come after it, where, when and how it runs. The only list of them.

A stage is one entry, here or as ``STAGE`` in a module of its name that a plugin adds to this package, and the module of
its name in ``spark_jobs.jobs``, which runs it.
"""

import importlib
import re
from dataclasses import dataclass
from enum import StrEnum

from backend.domain import routing
from backend.domain.capabilities import Reading
from backend.domain.registry import load_failure, module_names


class Application(StrEnum):
    """A Spark application, which is the job of that name."""

    DATA_PLANE = "data-plane"
    SQL = "sql"
    """Runs only while there are queries."""


class Form(StrEnum):
    """How a stage runs on Spark, and what its module declares for it."""

    QUERY = "query"
    """A Structured Streaming query in real-time mode, which ``start_stage`` starts on the driver: a task slot for
    each partition that it reads."""
    LANE = "lane"
    """Lane tasks that read a topic (``spark_jobs/streaming/lane_task.py``): ``LANE``."""
    INPUT = "input"
    """Lane tasks that read leased inputs (``spark_jobs/streaming/input_lane.py``), and need no module."""
    STORE = "store"
    """Tasks that store the messages of a topic: ``run_slot``."""
    SQL = "sql"
    """Any number of Structured Streaming queries in short batches, which ``start_stage`` starts on the driver."""


@dataclass(frozen=True)
class Stage:
    """One stage."""

    name: str
    form: Form
    priority: int
    """With too few task slots, stages with a lower number get theirs first: what senders were promised comes before
    what has still to be read, which waits in its source."""
    application: Application = Application.DATA_PLANE
    on_demand: bool = True
    """Whether it rests while nothing needs it; otherwise it runs as long as its application."""
    topic: str | None = None
    """The topic that it reads, as the consumer group ``headrace-NAME`` unless it is a query."""
    next: tuple[str, ...] = ()
    """Topics that it may write messages to."""
    redelivers: bool = False
    """Whether its dead letters are redelivered to its own topic."""
    dead_as: str = ""
    """The stage that its dead letters name, and are redelivered to, if it is another one."""
    reading: Reading | None = None
    """Which inputs it reads."""

    def __post_init__(self) -> None:
        """Raises ValueError when there is nothing to read."""
        read = self.reading if self.form is Form.INPUT else self.topic
        if read is None and self.form is not Form.SQL:
            missing = "reading" if self.form is Form.INPUT else "topic"
            raise ValueError(f"The stage {self.name} has the form {self.form}, which needs a {missing}.")

    @property
    def group(self) -> str:
        """Its consumer group."""
        return f"headrace-{self.name}"


INPUT_BATCHING = Stage(
    "input_batching",
    Form.INPUT,
    priority=9,
    next=(routing.INPUT, routing.TRANSFORMER),
    reading=Reading.BATCHING,
)
INPUT_STREAMING = Stage(
    "input_streaming",
    Form.INPUT,
    priority=8,
    next=(routing.INPUT, routing.TRANSFORMER),
    reading=Reading.STREAMING,
)
ADAPTING = Stage(
    "adapting",
    Form.QUERY,
    priority=2,
    on_demand=False,
    topic=routing.INPUT,
    next=(routing.FILTER, routing.ADAPTED),
)
ADAPTING_TRANSFORMER = Stage(
    "adapting_transformer",
    Form.LANE,
    priority=3,
    topic=routing.TRANSFORMER,
    next=(routing.TRANSFORMER_SLOW, routing.FILTER, routing.ADAPTED),
    redelivers=True,
)
ADAPTING_SLOW = Stage(
    "adapting_slow",
    Form.LANE,
    priority=5,
    topic=routing.TRANSFORMER_SLOW,
    next=(routing.FILTER, routing.ADAPTED),
    dead_as=ADAPTING_TRANSFORMER.name,
)
FILTERING = Stage(
    "filtering",
    Form.LANE,
    priority=4,
    topic=routing.FILTER,
    next=(routing.TRANSFORMER, routing.FILTER, routing.ADAPTED),
    redelivers=True,
)
SYNDICATING = Stage("syndicating", Form.LANE, priority=1, on_demand=False, topic=routing.ADAPTED, redelivers=True)
EXPORTER = Stage("exporter", Form.STORE, priority=7, topic=routing.EXPORT)
COLLECTIONS = Stage("collections", Form.STORE, priority=6, topic=routing.COLLECTION)
STREAM_SQL = Stage(
    "stream_sql",
    Form.SQL,
    priority=1,
    application=Application.SQL,
    on_demand=False,
    next=(routing.FILTER, routing.ADAPTED),
)

_OWN = (
    INPUT_BATCHING,
    INPUT_STREAMING,
    ADAPTING,
    ADAPTING_TRANSFORMER,
    ADAPTING_SLOW,
    FILTERING,
    SYNDICATING,
    EXPORTER,
    COLLECTIONS,
    STREAM_SQL,
)

_TOPIC = re.compile(r"firehose_[a-zA-Z0-9._-]{1,200}")
"""Topics of these names are hidden from statements of SQL, and an installation's user of Kafka may use them."""


def _added() -> tuple[list[Stage], list[str]]:
    """The stages of plugins, and a sentence about each one that cannot be used, which concerns no other."""
    names = {stage.name for stage in _OWN}
    added, broken = [], []
    for module in module_names(__name__):
        try:
            stage = importlib.import_module(module).STAGE
            if stage.name != module.rpartition(".")[2] or stage.name in names:
                raise ValueError(f"the stage needs the name of its file, which no other has, not {stage.name!r}")
            if wrong := [topic for topic in _topics(stage) if not _TOPIC.fullmatch(topic)]:
                raise ValueError(f"the name of the topic {wrong[0]!r} does not begin with 'firehose_'")
            added.append(stage)
        except Exception as error:
            broken.append(load_failure(module, error))
    return added, broken


def _topics(stage: Stage) -> list[str]:
    return [*([stage.topic] if stage.topic else []), *stage.next]


_plugins, BROKEN = _added()
STAGES: tuple[Stage, ...] = (*_OWN, *_plugins)
_BY_NAME = {stage.name: stage for stage in STAGES}
_QUERIES_TASKS = 8
"""Tasks of streaming SQL are short and take turns, so any number of queries get on with these."""


def stage_named(name: str) -> Stage:
    """Raises KeyError."""
    return _BY_NAME[name]


def stages_in(application: Application) -> tuple[Stage, ...]:
    """The stages of that application."""
    return tuple(stage for stage in STAGES if stage.application is application)


def all_topics() -> list[str]:
    """The topics that have to exist: the platform's, and those that stages of plugins read and write."""
    return list(dict.fromkeys([*routing.TOPICS, *(topic for stage in _plugins for topic in _topics(stage))]))


def task_slots(stage: Stage, *, partitions: int, lane_slots: int) -> int:
    """How many task slots the stage can use. ``partitions`` are those of the topic that a query in real-time mode
    reads."""
    match stage.form:
        case Form.QUERY:
            return partitions
        case Form.SQL:
            return _QUERIES_TASKS
    return lane_slots
