from collections.abc import AsyncIterator
from contextlib import aclosing
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from pydantic import Field

from backend.connectors.kinesis.shards import Shards
from backend.connectors.kinesis.stream import KinesisConnection, Stream, StreamOptions
from backend.domain.capabilities import Batch, InputRecord, ReadStream
from backend.domain.model import ADVANCED


class KinesisReadOptions(StreamOptions):
    """Records of one stream."""

    begin: Literal["earliest", "latest"] = Field(
        "earliest",
        description="Where reading begins at the first time: with the oldest record that the stream keeps, or with "
        "those put from now on.",
    )
    content_type: str = Field(
        "application/json", min_length=1, description="Content type of the records.", json_schema_extra=ADVANCED
    )


class KinesisReadStream(ReadStream[KinesisConnection, KinesisReadOptions]):
    """Reads all shards of a stream. The partition key is the ordering key.

    At least once. Headrace keeps how far it has read each shard, so that nothing has to be made in AWS; after a crash
    it goes on there, and reads some records again, as messages with the same IDs. Shards that were split or merged are
    read to their end before those that they became, so that the order of a key holds. What the stream's retention
    period has removed before it was read is lost. Records that the Kinesis Producer Library has aggregated are read as
    one."""

    options_model = KinesisReadOptions
    keeps_position = True

    async def open(self) -> None:
        self._stream = Stream(self.connection, self.options)
        await self._stream.open()
        answer = await self._stream.call("describe_stream_summary")
        made = round(answer["StreamDescriptionSummary"]["StreamCreationTimestamp"].timestamp() * 1000)
        position = self.position
        if position is None or position["made"] != made:  # another stream of the same name is read from its beginning
            is_latest = position is None and self.options.begin == "latest"
            position = {"made": made, "since": _server_time(answer) if is_latest else 0, "shards": {}}
        self._position = position

    async def close(self) -> None:
        await self._stream.close()

    async def stream(self) -> AsyncIterator[Batch]:
        # Without it, a reader that was restarted before the first record came would begin at a later moment.
        yield Batch([], self._position)
        shards = Shards(self._stream, self._position["since"], self._position["shards"])
        async with aclosing(shards.read()) as answers:
            async for answer in answers:
                records = [self._record(answer.shard, record) for record in answer.records]
                yield Batch(records, {**self._position, "shards": answer.positions})

    async def acknowledge(self, position: Any) -> None:
        """Kinesis keeps no positions."""

    def _record(self, shard: str, record: Any) -> InputRecord:
        return InputRecord(
            record["Data"],
            content_type=self.options.content_type,
            key=record["PartitionKey"].encode(),
            identity=f"{self.options.stream}/{shard}/{record['SequenceNumber']}",
        )


def _server_time(answer: Any) -> int:
    """In seconds. Kinesis rejects moments that its own clock has not reached."""
    return round(parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp())
