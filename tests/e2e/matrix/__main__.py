"""Writes the page of all pairs: ``python -m tests.e2e.matrix PAGE``."""

import sys
from collections.abc import Iterable
from pathlib import Path

from backend.domain.connector import connectors
from tests.e2e.matrix.all_ends import EndT, ends_of
from tests.e2e.matrix.ends import End, Inlet, Outlet

_PAGE = """# What arrives field by field

A set of records is written into each of these systems, read by a pipeline, delivered to each of the others and read
there by the system's own client. It has texts of all kinds, with quotes, commas and line breaks, one of 900 kB,
booleans, nulls and missing fields, 2⁶³-1 and -2⁶³, decimals of 29 digits, a time with a zone, and nested objects and
lists. Every field arrives as it was. `make test` runs pairs that have each input and each output, `make test-long`
all pairs, and `make test-n8n` those of n8n. The long form also kills the workers that read and deliver, five times,
while records are on their way: none is lost.

| input | {outputs} |
|---|{rule}
{rows}

- ✓: every field.
- 64: every field but decimals and integers beyond 64 bits, which the database of the tests, FerretDB, does not hold.
- 54: every field but decimals and integers beyond 2⁵³, since numbers of n8n are those of JavaScript.
"""


def _title(end: type[End]) -> str:
    return end.title or connectors.get(end.type).title


def _titled(ends: Iterable[type[EndT]]) -> list[type[EndT]]:
    return sorted(ends, key=lambda one: _title(one).casefold())


def _cell(inlet: type[Inlet], outlet: type[Outlet]) -> str:
    bits = [end.integer_bits for end in (inlet, outlet) if end.integer_bits]
    return str(min(bits)) if bits else "✓"


def page() -> str:
    """All pairs as a table in Markdown."""
    inlets, outlets = _titled([*ends_of(Inlet), *ends_of(Inlet, "n8n")]), _titled(ends_of(Outlet))
    rows = [" | ".join([f"| {_title(one)}", *(_cell(one, outlet) for outlet in outlets)]) + " |" for one in inlets]
    return _PAGE.format(outputs=" | ".join(map(_title, outlets)), rule="---|" * len(outlets), rows="\n".join(rows))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
