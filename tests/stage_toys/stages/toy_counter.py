from backend.domain.stages import Form, Stage

STAGE = Stage("toy_counter", Form.SQL, priority=25, on_demand=False, next=("firehose_toy_shelf",))
