from backend.domain.stages import Form, Stage

STAGE = Stage("toy_shout", Form.LANE, priority=22, topic="firehose_toy_shout", next=("firehose_toy_shelf",))
