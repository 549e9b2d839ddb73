"""The stages: what each reads, what may come after it, where, when and how it runs. The only list of them."""

from dataclasses import dataclass
from enum import StrEnum

from backend.domain import routing
from backend.domain.capabilities import Reading


class Application(StrEnum):
    """A Spark application, which is the job of that name."""

    DATA_PLANE = "data-plane"
    SQL = "sql"
    """Runs only while there are queries."""


class Form(StrEnum):
    """How a stage runs on Spark."""

    QUERY = "query"
    """A Structured Streaming query in real-time mode: a task slot for each partition that it reads."""
    LANE = "lane"
    """Lane tasks that read a topic (``spark_jobs/streaming/lane_task.py``)."""
    INPUT = "input"
    """Lane tasks that read leased inputs (``spark_jobs/streaming/input_lane.py``)."""
    STORE = "store"
    """Tasks that store the messages of a topic (``run_slot`` in the module of the stage's name)."""
    SQL = "sql"
    """Structured Streaming queries, as statements make and end them (``spark_jobs/jobs/stream_sql.py``)."""


@dataclass(frozen=True)
class Stage:
    """One stage. A lane's handler is in the module of its name in ``spark_jobs.jobs``."""

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

STAGES: tuple[Stage, ...] = (
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

_BY_NAME = {stage.name: stage for stage in STAGES}
_QUERIES_TASKS = 8
"""Tasks of streaming SQL are short and take turns, so any number of queries get on with these."""


def stage_named(name: str) -> Stage:
    """Raises KeyError."""
    return _BY_NAME[name]


def stages_in(application: Application) -> tuple[Stage, ...]:
    """The stages of that application."""
    return tuple(stage for stage in STAGES if stage.application is application)


def task_slots(stage: Stage, *, partitions: int, lane_slots: int) -> int:
    """How many task slots the stage can use. ``partitions`` are those of the topic that a query in real-time mode
    reads."""
    match stage.form:
        case Form.QUERY:
            return partitions
        case Form.SQL:
            return _QUERIES_TASKS
    return lane_slots
