from backend.domain import routing
from backend.domain.capabilities import Reading
from backend.domain.stages import Form, Stage

STAGE = Stage(
    "toy_reader",
    Form.INPUT,
    priority=24,
    next=(routing.INPUT, routing.TRANSFORMER),
    reading=Reading.BATCHING,
)
