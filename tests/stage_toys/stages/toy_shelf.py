from backend.domain.stages import Form, Stage

STAGE = Stage("toy_shelf", Form.STORE, priority=23, topic="firehose_toy_shelf")
