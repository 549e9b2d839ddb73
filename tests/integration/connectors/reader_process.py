"""A process that reads an input's first batch, acknowledges nothing, prints the batch, and waits to be killed."""

import asyncio
import sys

from backend.domain import json
from backend.domain.capabilities import ReadBatch
from tests.integration.connectors.suites import input_reader, opened


async def main(setting: str) -> None:
    arguments = json.loads(setting)
    reader = input_reader(arguments["type"], arguments["connection"], arguments["options"], arguments.get("registered"))
    async with opened(reader):
        async for batch in reader.read(None) if isinstance(reader, ReadBatch) else reader.stream():
            if batch.records:
                bodies = [record.body.decode() for record in batch.records]
                print(json.dumps({"bodies": bodies, "breakpoint": batch.breakpoint}).decode(), flush=True)
                await asyncio.Event().wait()


asyncio.run(main(sys.argv[1]))
