"""The Lua scripts that keep breakers, rate limits and the delivered ledger in Redis, and the keys they use."""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from backend.domain import json

EVENTS = "headrace:events"
"""Stream of events of outputs: ``kind``, ``output`` (JSON), ``state``, ``until``, ``cause``."""

LEDGER_HORIZON = "headrace:ledger-horizon"
"""Unix time, by Redis' clock: no copy of a message that was delivered before it can arrive any more."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text and the name Redis knows it by once it is loaded."""

    text: str

    @property
    def sha(self) -> str:
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


@lru_cache
def script(name: str) -> Script:
    return Script((Path(__file__).parent / "lua" / f"{name}.lua").read_text())


@dataclass(frozen=True, slots=True)
class OutputKey:
    """An output of a pipeline, whatever the version: breaker, limit and ledger are kept under it."""

    pipeline_id: str
    output: str

    def _key(self, kind: str) -> str:
        return f"headrace:{kind}:{self.pipeline_id}/{self.output}"

    @property
    def breaker(self) -> str:
        return self._key("breaker")

    @property
    def errors(self) -> str:
        """List of the latest errors, newest first: ``time|message|cause``."""
        return self._key("breaker-errors")

    @property
    def limit(self) -> str:
        return self._key("limit")

    @property
    def hold(self) -> str:
        """Until when the receiver asked to be left alone (Unix time); expires then."""
        return self._key("hold")

    @property
    def ledger(self) -> tuple[str, str]:
        """Delivered message ids (16 bytes) and where each was read; the newer and the older half."""
        return self._key("delivered"), self._key("delivered-before")

    @property
    def backlog(self) -> str:
        """Exists while redelivery has messages waiting for the rate limit: these go first."""
        return self._key("backlog")

    def name(self) -> bytes:
        """The output's name in events."""
        return json.dumps([self.pipeline_id, self.output])
