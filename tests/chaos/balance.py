"""What became of every message that was sent."""

import json
import statistics
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import psycopg

from backend.domain.reasons import Reason
from tests.chaos.receivers import Inbox, Receivers
from tests.chaos.senders import Sent
from tests.chaos.tenants import Destination, Tenant
from tests.installation import Installation, call

_OF_THE_MESSAGE = {
    Reason.MALFORMED,
    Reason.UNKNOWN_PIPELINE,
    Reason.UNKNOWN_OUTPUT,
    Reason.CONFIGURATION,
    Reason.INTERNAL,
    Reason.ENDED_WORKER,
    Reason.OUT_OF_MEMORY,
    Reason.TRANSFORM_FAILED,
    Reason.TOO_LARGE,
    Reason.REFUSED_BY_KAFKA,
    Reason.NOT_JSON,
    Reason.ANSWER,
}
"""Reasons that no outage may give a message that is well formed."""


@dataclass(frozen=True)
class Late:
    """A message that first arrived after a later one of its key; ``at`` is a time of the monotonic clock."""

    key: str
    number: int
    after: int
    at: float


@dataclass
class DeadLetters:
    """Those of one destination: the ids of all that ever were, and the reasons of those that are waiting, by id."""

    ids: set[str] = field(default_factory=set)
    waiting: dict[str, str] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    """Of all that ever were."""


@dataclass
class Account:
    """One destination's balance. Everything but ``billed`` is counted in messages."""

    destination: Destination
    sent: int
    delivered: int
    waiting: int
    refused: Counter[str]
    missing: int
    repeated_requests: int
    """Messages that arrived although their request was answered with an error or not at all."""
    out_of_order: list[Late]
    blamed: Counter[str]
    """Reasons for which messages became dead letters although nothing was wrong with them."""
    repeated: int
    """Deliveries of messages that the receiver had accepted before."""
    billed: int

    @property
    def balances(self) -> bool:
        at_fault = self.missing or self.waiting or self.out_of_order or self.blamed
        return not at_fault and self.billed == self.delivered

    @property
    def open_items(self) -> int:
        """How far the account is from its balance, in what the platform still works off."""
        return self.missing + self.waiting + abs(self.billed - self.delivered)


@dataclass
class Phase:
    """A part of the run, by the monotonic clock."""

    name: str
    began: float
    ended: float


class Books:
    """Draws up the balance of a run."""

    def __init__(
        self, installation: Installation, receivers: Receivers, tenants: list[Tenant], sent: dict[str, Sent]
    ) -> None:
        self._installation = installation
        self._receivers = receivers
        self._tenants = tenants
        self._sent = sent

    def accounts(self) -> list[Account]:
        letters = self._dead_letters()
        return [
            self._account(tenant, destination, letters.get((destination.pipeline, destination.output), DeadLetters()))
            for tenant in self._tenants
            for destination in tenant.destinations
        ]

    def redrive(self) -> None:
        """Redelivers every dead letter that breakers, rate limits or outages held back."""
        for tenant in self._tenants:
            if not tenant.refused:
                self._call(tenant, "POST", "dead-letters/redrive/", {"filter": {"state": "waiting"}})

    def p99(self, phase: Phase) -> float:
        """Milliseconds from posting to receiving, for what the well-behaved tenants sent in the phase."""
        seconds = [
            inbox.ids[arrived] - posted
            for tenant in self._tenants
            for destination in tenant.destinations
            if destination.prompt and not tenant.misbehaves
            for inbox in [self._inbox(destination)]
            for sent, posted in self._sent[tenant.name].ids.items()
            if phase.began <= posted < phase.ended and (arrived := destination.id_of(sent)) in inbox.ids
        ]
        return statistics.quantiles(seconds, n=100)[98] * 1000

    def _account(self, tenant: Tenant, destination: Destination, letters: DeadLetters) -> Account:
        inbox = self._inbox(destination)
        expected = {destination.id_of(id) for id in self._sent[tenant.name].ids}
        held = {id: reason for id, reason in letters.waiting.items() if id not in inbox.ids}
        refused = Counter(held.values()) if tenant.refused else Counter[str]()
        return Account(
            destination,
            sent=len(expected),
            delivered=len(inbox.ids),
            waiting=0 if tenant.refused else len(held),
            refused=refused,
            missing=len(expected - inbox.ids.keys() - held.keys()),
            repeated_requests=len(inbox.ids.keys() - expected),
            out_of_order=_late(inbox, expected - letters.ids) if destination.ordered else [],
            blamed=Counter() if tenant.misbehaves else _only(letters.reasons, _OF_THE_MESSAGE),
            repeated=inbox.repeated,
            billed=self._billed(tenant, destination),
        )

    def _billed(self, tenant: Tenant, destination: Destination) -> int:
        status, rows = self._call(tenant, "GET", f"usage/?step=day&pipeline={destination.pipeline}")
        if status != 200:
            return -1
        return sum(row["deliveries"] for row in rows if row["output"] == destination.output)

    def _inbox(self, destination: Destination) -> Inbox:
        return self._receivers.inbox(destination.tenant, destination.output)

    def _dead_letters(self) -> dict[tuple[str, str], DeadLetters]:
        """By pipeline and output. A letter of a stage before the outputs concerns each output of its pipeline and of
        those that subscribe to it."""
        statement = (
            "SELECT pipeline_id::text, output, message_id, state IN ('waiting', 'redelivering'), reason, "
            "CASE WHEN pipeline_id = ANY(%s::uuid[]) THEN body END "
            "FROM deliveries_deadletter WHERE pipeline_id = ANY(%s::uuid[])"
        )
        concerned: dict[str, list[Destination]] = {}
        for tenant in self._tenants:
            for destination in tenant.destinations:
                concerned.setdefault(destination.pipeline, []).append(destination)
                if destination.subscribes:
                    concerned.setdefault(tenant.entry, []).append(destination)
        reading = [pipeline for pipeline, destinations in concerned.items() if any(d.reads for d in destinations)]
        letters: dict[tuple[str, str], DeadLetters] = {}
        with psycopg.connect(self._installation.database_url) as connection:
            rows = connection.execute(statement, [reading, list(concerned)])
            for pipeline, output, message, waits, reason, document in rows:
                sent = message if document is None else json.loads(document)["id"]
                for destination in concerned[pipeline]:
                    is_own = destination.pipeline == pipeline
                    if output and not (is_own and destination.output == output):
                        continue
                    id = sent if is_own else destination.id_of(sent)
                    group = letters.setdefault((destination.pipeline, destination.output), DeadLetters())
                    group.ids.add(id)
                    group.reasons[reason] += 1
                    if waits:
                        group.waiting[id] = reason
        return letters

    def _call(self, tenant: Tenant, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return call(method, f"{self._installation.endpoint('api')}{path}", body, tenant.key)


def _only(counts: Counter[str], names: set[Reason]) -> Counter[str]:
    return Counter({name: number for name, number in counts.items() if name in names})


def _late(inbox: Inbox, ids: set[str]) -> list[Late]:
    """Dead letters were set aside and are exempt, as are messages whose request was never answered: they may be
    produced at any later time."""
    late = []
    for key, received in inbox.order.items():
        latest = -1
        for number, id in received:
            if id in ids:
                if number < latest:
                    late.append(Late(key, number, latest, inbox.ids[id]))
                latest = max(latest, number)
    return late
