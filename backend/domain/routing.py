"""Decides which topics a message passes, once where it enters."""

from backend.domain.pipeline import PipelineConfig

INPUT = "firehose_input"
TRANSFORMER = "firehose_transformer"
TRANSFORMER_SLOW = "firehose_transformer_slow"
"""Messages that wait for slow external APIs, separate from all others."""
FILTER = "firehose_filter"
ADAPTED = "firehose_adapted"
DEAD_LETTER = "firehose_dead_letter"
BILLING = "firehose_billing"
ATTEMPTS = "firehose_attempts"
EXPORT = "firehose_export"
"""Messages that are delivered to outputs that store files."""
COLLECTION = "firehose_collection"
"""Messages that are delivered to outputs that keep a collection, by the partition of the collection."""

TOPICS = (INPUT, TRANSFORMER, TRANSFORMER_SLOW, FILTER, ADAPTED, DEAD_LETTER, BILLING, ATTEMPTS, EXPORT, COLLECTION)


def processing_source(pipeline_id: str) -> str:
    """The topic that stream processing reads a pipeline's messages from."""
    return f"firehose_processing_source_{pipeline_id}"


def route(config: PipelineConfig, pipeline_id: str) -> tuple[str, tuple[str, ...]]:
    """The entry topic and the routing slip: the topics still ahead after it.

    Pipelines that transform enter at ``firehose_transformer``, as do those that write Avro for stream
    processing; all others at ``firehose_input``, so that they never wait for other pipelines' transforms. A
    filtered message has already been adapted and skips that stage.
    """
    processing = (processing_source(pipeline_id),) if config.stream_processing else ()
    ahead = processing + ((FILTER,) if config.index else ()) + ((ADAPTED,) if config.outputs else ())
    if config.transforms or config.stream_processing:
        return TRANSFORMER, ahead
    if config.input.adapted:
        return ahead[0], ahead[1:]
    return INPUT, ahead
