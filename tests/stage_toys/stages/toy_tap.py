from backend.domain import routing
from backend.domain.stages import Form, Stage

STAGE = Stage("toy_tap", Form.QUERY, priority=21, on_demand=False, topic=routing.ADAPTED, next=("firehose_toy_shout",))
