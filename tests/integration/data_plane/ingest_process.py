"""The ingest whose Redis and Kafka may take their time: ``uvicorn tests.integration.data_plane.ingest_process:app``.

On a busy machine they may take longer than it waits for them, and then it accepts a repeated request twice, or none.
"""

from backend.ingest import app as ingest
from backend.ingest import idempotency
from tests.waiting import LIMIT_SECONDS

idempotency._ANSWER_SECONDS = LIMIT_SECONDS
ingest._ACKNOWLEDGE_SECONDS = LIMIT_SECONDS
app = ingest.app
