"""Checks a change stream against the rules of CDCv2 as Materialize's documentation and differential dataflow have
them. Shares no code with what writes streams, nor with the reference receiver."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any


def checked(messages: Iterable[Any]) -> tuple[Counter[str], int]:
    """The multiset of records, and up to which time the stream is complete. ``messages`` are lists of updates and
    progress statements, in any order and any number of times each. Fails where a rule is broken."""
    diffs: dict[tuple[str, int], int] = {}
    times: defaultdict[int, set[str]] = defaultdict(set)
    statements: dict[tuple[int, int], dict[int, int]] = {}
    for message in messages:
        if isinstance(message, dict):
            [lower], [upper] = message["lower"], message["upper"]
            assert 0 <= lower < upper
            counts = {count["time"]: count["count"] for count in message["counts"]}
            assert all(lower <= time < upper and number >= 0 for time, number in counts.items())
            assert statements.setdefault((lower, upper), counts) == counts, "A statement was revoked."
            continue
        for update in message:
            data, time, diff = json.dumps(update["data"], sort_keys=True), update["time"], update["diff"]
            assert diff != 0
            assert time >= 0
            assert diffs.setdefault((data, time), diff) == diff, "A record has two differences at a time."
            times[time].add(data)
    complete = 0
    for (lower, upper), counts in sorted(statements.items()):
        assert lower == complete, f"The interval from {lower} does not follow the one to {complete}."
        for time in {time for time in times if lower <= time < upper} | counts.keys():
            assert len(times[time]) == counts.get(time, 0), f"Not as many updates at {time} as stated."
        complete = upper
    records: Counter[str] = Counter()
    for (data, time), diff in diffs.items():
        if time < complete:
            records[data] += diff
    return Counter({data: count for data, count in records.items() if count}), complete
