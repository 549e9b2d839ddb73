"""The stages of the data plane: what each reads, what may come after it, and how it runs. The only list of them."""

from dataclasses import dataclass
from enum import StrEnum

from backend.domain import routing
from backend.domain.capabilities import Reading


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
    "input_batching", Form.INPUT, next=(routing.INPUT, routing.TRANSFORMER), reading=Reading.BATCHING
)
INPUT_STREAMING = Stage(
    "input_streaming", Form.INPUT, next=(routing.INPUT, routing.TRANSFORMER), reading=Reading.STREAMING
)
ADAPTING = Stage("adapting", Form.QUERY, routing.INPUT, next=(routing.FILTER, routing.ADAPTED))
ADAPTING_TRANSFORMER = Stage(
    "adapting_transformer",
    Form.LANE,
    routing.TRANSFORMER,
    next=(routing.TRANSFORMER_SLOW, routing.FILTER, routing.ADAPTED),
    redelivers=True,
)
ADAPTING_SLOW = Stage(
    "adapting_slow",
    Form.LANE,
    routing.TRANSFORMER_SLOW,
    next=(routing.FILTER, routing.ADAPTED),
    dead_as=ADAPTING_TRANSFORMER.name,
)
FILTERING = Stage(
    "filtering", Form.LANE, routing.FILTER, next=(routing.TRANSFORMER, routing.FILTER, routing.ADAPTED), redelivers=True
)
SYNDICATING = Stage("syndicating", Form.LANE, routing.ADAPTED, redelivers=True)
EXPORTER = Stage("exporter", Form.STORE, routing.EXPORT)
COLLECTIONS = Stage("collections", Form.STORE, routing.COLLECTION)

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
)

STREAM_SQL = Stage("stream_sql", Form.SQL, next=(routing.FILTER, routing.ADAPTED))
"""Runs in an application of its own, and only while there are queries."""


def stage_named(name: str) -> Stage:
    """Raises KeyError."""
    return _BY_NAME[name]


_BY_NAME = {stage.name: stage for stage in (*STAGES, STREAM_SQL)}
