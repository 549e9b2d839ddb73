"""The reference page of what survives: of each input and output what its declaration says of repeats and losses."""

import inspect
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from backend.domain.capabilities import (
    Capability,
    Collect,
    Deliver,
    DeliverBatch,
    Export,
    ReadBatch,
    ReadStream,
)
from backend.domain.connector import Connector, connectors

_HEAD = """# What survives

What a crash, a restart, an outage and a new password do to each input and output: what may come twice, what is kept,
and for how long. [Concepts](../concepts.md#what-is-guaranteed-at-each-hop) has the guarantee of each hop, and
[Reliability](reliability.md) the tests.

## A worker of the data plane crashes

| part | what is kept | what may come twice |
|---|---|---|
| input over HTTP | what was answered with 202 | a request that got no answer, and is sent again without an \
`Idempotency-Key` |
| input that is read | the position, with a heartbeat every few seconds; the next reader begins about a minute after \
the last heartbeat | what was read since that position |
| output | what was not delivered yet waits in Kafka | attempts that were under way, or whose result was not \
committed; the ledger in Redis suppresses those that it has noted |
| export and collection | messages that were handed over | nothing |

## The console restarts

The data plane goes on with the configuration that it has; applications of Spark are found again, and not started anew.
Readers keep what they hold, and record their positions once the manager answers: if one of them dies in the meantime,
its successor begins at the last recorded position. Requests of the API, connection tests and publishes that were under
way are cut off, and can be repeated; preparations in other systems, such as slots and workflows, are taken up where
they stopped.

## The other system is away

Inputs report why they cannot read, and try again by themselves: streams after five seconds, batches after half a
minute. Their position does not expire. What the other system removes meanwhile, by a retention period or a limit of its
own, is lost; the tables below say where that can happen.

Outputs try again, then set messages aside as [dead letters](../guides/failures.md#dead-letters), whose number of tries
and whose room are bounded there. Files that cannot be stored are tried again, and their messages stay
[staged](../guides/exports.md).

## A password is rotated

What happens when the new password is saved is said under [Secrets](../operations/identity-and-secrets.md#secrets).
Saving it moves no position, and what was made in the other system under the old password is kept. Until then:

- An input reads nothing, and its position stays.
- An output's messages are set aside. A login that is refused counts as a temporary cause, except at an HTTP endpoint,
  whose answer of 401 or 403 is final: such dead letters wait for a redrive. The breaker opens after the first few of
  them, and holds back all others, which follow by themselves.
- A registration is neither made nor removed, and is tried again."""

_ABOUT_SURVIVAL = re.compile(
    r"\b(once|crash|again|repeat\w*|lost|keeps?|kept|miss(ed)?|remove[sd]|replaced|pending|interrupt\w*|"
    r"acknowledge(d|ment)?|transaction|appear|same message IDs?)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=\.)\s+(?=[A-Z\"`])")
READING: tuple[type[Capability[Any, Any]], ...] = (ReadBatch, ReadStream)
WRITING: tuple[type[Capability[Any, Any]], ...] = (Deliver, DeliverBatch, Export, Collect)


class Use(NamedTuple):
    """A capability that a connector has."""

    connector: type[Connector]
    capability: type[Capability[Any, Any]]


def survival_page() -> str:
    """The page in Markdown."""
    parts = [_HEAD, "## Inputs", _inputs_table(), "## Outputs", _outputs_table()]
    return "\n\n".join(parts) + "\n"


def survival_of(capability: type[Capability[Any, Any]]) -> str:
    """The sentences of its description that say what may repeat, be lost or be kept."""
    sentences = _SENTENCE_END.split(" ".join(inspect.cleandoc(capability.__doc__ or "").split()))
    return " ".join(sentence for sentence in sentences if _ABOUT_SURVIVAL.search(sentence))


def uses_of(
    kinds: tuple[type[Capability[Any, Any]], ...],
) -> Iterator[tuple[type[Connector], type[Capability[Any, Any]]]]:
    """Those of the capabilities of these kinds, by the connectors."""
    for connector in connectors:
        for capability in connector.capabilities:
            if issubclass(capability, kinds):
                yield Use(connector, capability)


def _inputs_table() -> str:
    rows = [
        f"| {_link(connector)} | {_keeper(capability)} | {_cell(survival_of(capability))} |"
        for connector, capability in uses_of(READING)
    ]
    return "\n".join(["| input | its position is kept by | what may repeat or be lost |", "|---|---|---|", *rows])


def _outputs_table() -> str:
    rows = [
        f"| {_link(connector)} | {capability.name} | {_cell(survival_of(capability))} |"
        for connector, capability in uses_of(WRITING)
    ]
    return "\n".join(["| output | use | what may repeat or be lost |", "|---|---|---|", *rows])


def _keeper(capability: type[Capability[Any, Any]]) -> str:
    kept_here = not issubclass(capability, ReadStream) or capability.keeps_position
    return "Headrace" if kept_here else "the other system"


def _link(connector: type[Connector]) -> str:
    return f"[{connector.title}](../connectors/{connector.type}.md)"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
