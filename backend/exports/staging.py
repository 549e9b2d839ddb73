"""Parts of messages that wait for their files, in Parquet."""

import io
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from backend.domain.message import Message
from backend.exports.documents import StagedMessage


class Group(NamedTuple):
    """Messages that may share a file."""

    workspace_id: str
    pipeline_id: str
    output: str
    version: int


def part_path(group: Group, partition: int, first: int, last: int) -> str:
    """Named by positions in Kafka: staging the same records again writes the same file again."""
    return f"{group.pipeline_id}/{group.output}/{group.version}/{partition}-{first}-{last}.parquet"


def encode_part(messages: Sequence[Message]) -> bytes:
    """A part as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "message_id": pa.array([message.id for message in messages], pa.string()),
            "received_at": pa.array([message.received_at for message in messages], pa.string()),
            "content_type": pa.array([message.content_type for message in messages], pa.string()),
            "key": pa.array([message.key for message in messages], pa.binary()),
            "body": pa.array([message.body for message in messages], pa.binary()),
        }
    )
    written = io.BytesIO()
    pq.write_table(table, written, compression="zstd")
    return written.getvalue()


def decode_part(data: bytes, first: int, rows: int, at_a_time: int) -> Iterator[list[StagedMessage]]:
    """Some rows of a part, some at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = ["message_id", "received_at", "content_type", "body"]
    table = pq.read_table(pa.BufferReader(data), columns=columns).slice(first, rows)
    for batch in table.to_batches(max_chunksize=at_a_time):
        values = [batch.column(name).to_pylist() for name in columns]
        yield [StagedMessage(*row) for row in zip(*values, strict=True)]
