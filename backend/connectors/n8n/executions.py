import time
from collections.abc import AsyncIterator
from typing import Any

from backend.connectors.n8n.client import N8nClient
from backend.connectors.n8n.connection import N8nConnection, N8nOptions
from backend.domain import json
from backend.domain.capabilities import Batch, DeliveryError, InputRecord, ReadBatch
from backend.domain.reasons import Reason

_OPEN = {"new", "running", "waiting", "unknown"}
_LARGEST_NUMBER = 2**53 - 1
_EXECUTIONS = 500
"""The most that are read at a time; the rest comes with the next batch."""
_READ_SECONDS = 600.0
"""After this time, reading ends with the next execution; the rest comes with the next batch, too."""


class N8nReadBatch(ReadBatch[N8nConnection, N8nOptions]):
    """Reads the items that a node of the workflow put out, execution by execution, in the order in which these began.

    At least once; an execution that is read again makes the same message IDs (execution and item). An execution that
    still runs or waits is read once it has ended, after later ones. Executions that failed or were canceled are passed
    over. n8n deletes old executions (EXECUTIONS_DATA_MAX_AGE): those that were not read by then are lost. n8n's numbers
    are those of JavaScript: integers beyond 2^53 lose their last digits there."""

    options_model = N8nOptions

    async def open(self) -> None:
        self._client = N8nClient(self.connection)

    async def close(self) -> None:
        await self._client.close()

    def secrets(self) -> list[str]:
        return self.connection.sent_secrets()

    async def read(self, breakpoint: Any) -> AsyncIterator[Batch]:
        workflow = self.registered.get("workflow")
        if not workflow:
            text = "The workflow of this input was not made in n8n yet: publish the pipeline again."
            raise DeliveryError(Reason.CONFIGURATION, text, retryable=True)
        state = breakpoint or {}
        if state.get("workflow") != workflow:
            state = {"workflow": workflow, "after": 0, "open": []}
        until, seconds = time.monotonic() + _READ_SECONDS, self.options.timeout_seconds
        async with self._client.limit(seconds):
            ended, still_open, newest = await self._executions(workflow, state["after"], state["open"])
        unread = sorted(ended)
        for position, number in enumerate(unread[:_EXECUTIONS]):
            async with self._client.limit(seconds):
                records = await self._records(number) if ended[number] == "success" else []
            after = max(state["after"], number)
            left = [other for other in unread[position + 1 :] if other < after]
            waiting = [other for other in still_open if other < after]
            yield Batch(records, {"workflow": workflow, "after": after, "open": sorted({*left, *waiting})})
            if time.monotonic() > until:
                return
        if len(unread) <= _EXECUTIONS:
            yield Batch((), {"workflow": workflow, "after": max(state["after"], newest), "open": sorted(still_open)})

    async def _executions(
        self, workflow: str, after: int, open_before: list[int]
    ) -> tuple[dict[int, str], set[int], int]:
        """The executions that have ended, by their numbers with their states, those that have not, and the newest.

        What runs is asked for between two looks at the rest: an execution up to the newest one of the first look runs
        then, or has ended and is in the second look.
        """
        newest = max([after, *await self._numbers(workflow, after)])
        still_open = set(await self._numbers(workflow, after, status="running"))
        ended: dict[int, str] = {}
        for number, status in (await self._numbers(workflow, after)).items():
            if status in _OPEN:
                still_open.add(number)
            else:
                ended[number] = status
        for number in open_before:
            execution = await self._client.ask("GET", f"executions/{number}")
            if execution is not None and execution.get("status") in _OPEN:
                still_open.add(number)
            elif execution is not None:
                ended[number] = str(execution.get("status"))
        ended = {number: status for number, status in ended.items() if number <= newest}
        return ended, {number for number in still_open if number <= newest} - ended.keys(), newest

    async def _numbers(self, workflow: str, after: int, **query: str) -> dict[int, str]:
        """The states of later executions; n8n lists the newest first."""
        numbers: dict[int, str] = {}
        async for rows in self._client.pages("executions", workflowId=workflow, **query):
            try:
                states = {number_of(row): str(row.get("status")) for row in rows}
            except (KeyError, TypeError, AttributeError, ValueError):
                raise self._client.not_n8n() from None
            numbers |= {number: status for number, status in states.items() if number > after}
            if any(number <= after for number in states):
                break
        return numbers

    async def _records(self, number: int) -> list[InputRecord]:
        execution = await self._client.ask("GET", f"executions/{number}", None, includeData="true")
        if execution is None:
            return []  # deleted meanwhile
        result = (execution.get("data") or {}).get("resultData") or {}
        runs = (result.get("runData") or {}).get(self.options.node) or []
        outputs = [output or [] for run in runs for output in (run.get("data") or {}).get("main") or []]
        items = [item for output in outputs for item in output]
        return [
            InputRecord(json.dumps(item.get("json")), identity=f"{number}/{index}") for index, item in enumerate(items)
        ]


def number_of(row: dict[str, Any]) -> int:
    """The execution's number, which is a text in some versions of n8n. Raises KeyError, TypeError and ValueError."""
    return json.bounded_int(json.loads(json.text(row["id"])), 0, _LARGEST_NUMBER)
