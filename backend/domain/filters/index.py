"""The predicate index: which of many filters a message meets, without trying every one.

Each filter is entered under one of its terms that every match must meet: an equality is looked up in a
hash table, a prefix by its length, a range in a table or an interval tree. Only filters whose term the message meets
are candidates, and only candidates are evaluated. Filters without such a term (a negation alone) are
always candidates.
"""

import bisect
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Generic, Literal, TypeVar

from backend.domain.filters.conditions import (
    All,
    Any_,
    Comparison,
    Condition,
    Equals,
    FieldCondition,
    In,
    Index,
    Not,
    Predicate,
    Prefix,
    exact,
    kind_of,
)

K = TypeVar("K", bound=Hashable)

_WIDTH = {"equality": 1.0, "prefix": 1.0, "interval": 0.1, "half_line": 0.5, "presence": 1.0}
"""The part of the filters under one place of the index that a message meets, about."""


@dataclass(frozen=True)
class _Term:
    """One way to find a filter."""

    kind_of_term: Literal["equality", "prefix", "interval", "half_line", "presence"]
    field: str
    kind: str = ""
    value: Any = None
    low: Any = None
    high: Any = None

    @property
    def shared_by(self) -> tuple[str, str, str, Any]:
        """The place of the index; filters in the same place are candidates together."""
        return self.kind_of_term, self.field, self.kind, self.value


class PredicateIndex(Generic[K]):
    """Filters by their keys. Built once; a change of the filters needs a new one."""

    def __init__(self, filters: Iterable[tuple[K, Condition]]) -> None:
        self._predicates: dict[K, Predicate] = {}
        self._always: list[K] = []
        self._equal: defaultdict[tuple[str, str, Any], list[K]] = defaultdict(list)
        self._prefixes: defaultdict[str, _Prefixes[K]] = defaultdict(_Prefixes)
        self._present: defaultdict[str, list[K]] = defaultdict(list)
        intervals: defaultdict[tuple[str, str], list[tuple[Any, Any, K]]] = defaultdict(list)
        entries = list(filters)
        shared = Counter(term.shared_by for _, condition in entries for term in _all_terms(condition))
        for key, condition in entries:
            # What is found under its only term needs no further look.
            found_is_met = isinstance(condition, Equals | In | Prefix)
            self._predicates[key] = _met if found_is_met else condition.compile()
            terms = _best_terms(condition, shared)
            if terms is None:
                self._always.append(key)
                continue
            for term in set(terms):
                if term.kind_of_term == "equality":
                    self._equal[term.field, term.kind, term.value].append(key)
                elif term.kind_of_term == "prefix":
                    self._prefixes[term.field].add(term.value, key)
                elif term.kind_of_term == "presence":
                    self._present[term.field].append(key)
                else:
                    intervals[term.field, term.kind].append((term.low, term.high, key))
        self._intervals = {where: _lookup_of(found) for where, found in intervals.items()}

    def matches(self, index: Index) -> list[K]:
        """The keys of the filters that the message meets."""
        return [key for key in self.candidates(index) if self._predicates[key](index)]

    def candidates(self, index: Index) -> set[K]:
        """The keys of the filters that have to be evaluated."""
        found = set(self._always)
        for name, value in index.items():
            kind = kind_of(value)
            if kind != "other":
                found.update(self._equal.get((name, kind, value), ()))
                if (name, kind) in self._intervals:
                    self._intervals[name, kind].collect(value, found)
            if kind == "text" and name in self._prefixes:
                self._prefixes[name].collect(value, found)
            found.update(self._present.get(name, ()))
        return found


def _met(_index: Index) -> bool:
    return True


def _best_terms(condition: Condition, shared: Counter[Any]) -> list[_Term] | None:
    """Terms of which every match meets at least one, and which as few other filters as possible have; None when
    there are none such, empty when nothing matches."""
    match condition:
        case All(conditions=parts):
            ways = [way for part in _narrowed(parts) if (way := _best_terms(part, shared)) is not None]
            return min(ways, key=lambda way: sum(_cost(term, shared) for term in way), default=None)
        case Any_(conditions=parts):
            alternatives = [_best_terms(part, shared) for part in parts]
            if any(way is None for way in alternatives):
                return None
            return [term for way in alternatives for term in way or ()]
        case Not():
            return None
    return _leaf_terms(condition)


def _all_terms(condition: Condition) -> Iterator[_Term]:
    """Every term that the filter could be entered under."""
    match condition:
        case All(conditions=parts):
            for part in _narrowed(parts):
                yield from _all_terms(part)
        case Any_(conditions=parts):
            for part in parts:
                yield from _all_terms(part)
        case Not():
            return
        case _:
            yield from _leaf_terms(condition)


def _cost(term: _Term, shared: Counter[Any]) -> float:
    return shared[term.shared_by] * _WIDTH[term.kind_of_term]


def _leaf_terms(condition: Any) -> list[_Term]:
    match condition:
        case Equals(field=name, value=value):
            return [_Term("equality", name, kind_of(value), exact(value))]
        case In(field=name, values=values):
            return [_Term("equality", name, kind_of(value), exact(value)) for value in values]
        case Prefix(field=name, value=value):
            return [_Term("prefix", name, value=value)]
        case Comparison() as comparison:
            return [_half_line(comparison)]
        case _Between(term=term):
            return [term] if term.low <= term.high else []  # that no value meets
    return [_Term("presence", condition.field)]


def _half_line(comparison: Comparison) -> _Term:
    name, value, kind = comparison.field, exact(comparison.value), kind_of(comparison.value)
    if comparison.type.startswith("less"):
        return _Term("half_line", name, kind, high=value)
    return _Term("half_line", name, kind, low=value)


class _Between(FieldCondition):
    """Two comparisons of one field that bound it on both sides. Stands for them while terms are chosen."""

    term: Any


def _narrowed(parts: list[Any]) -> list[Any]:
    """The parts, with an interval for each field that is bounded from both sides."""
    lines: defaultdict[tuple[str, str], list[_Term]] = defaultdict(list)
    for part in parts:
        if isinstance(part, Comparison):
            line = _half_line(part)
            lines[line.field, line.kind].append(line)
    intervals = []
    for (name, kind), terms in lines.items():
        lows = [term.low for term in terms if term.low is not None]
        highs = [term.high for term in terms if term.high is not None]
        if lows and highs:
            intervals.append(_Between(field=name, term=_Term("interval", name, kind, low=max(lows), high=min(highs))))
    return [*parts, *intervals]


@dataclass
class _Prefixes(Generic[K]):
    """Prefixes of one field: each length that occurs is one lookup."""

    _by_length: dict[int, dict[str, list[K]]] = field(default_factory=dict)

    def add(self, prefix: str, key: K) -> None:
        self._by_length.setdefault(len(prefix), {}).setdefault(prefix, []).append(key)

    def collect(self, value: str, found: set[K]) -> None:
        for length, prefixes in self._by_length.items():
            found.update(prefixes.get(value[:length], ()))


_Interval = tuple[Any, Any, K]
"""Closed, open-ended where a bound is None."""

_MOST_OVERLAP = 32


def _lookup_of(intervals: "list[_Interval[K]]") -> "_Slots[K] | _IntervalTree[K]":
    """One look where few intervals overlap; a tree where its table would be large."""
    slots = _Slots(intervals)
    return slots if slots.fill(_MOST_OVERLAP * len(intervals)) else _IntervalTree(intervals)


class _Slots(Generic[K]):
    """Intervals of one field as a table: for each bound and each gap between two, who holds there."""

    def __init__(self, intervals: "list[_Interval[K]]") -> None:
        self._intervals = intervals
        self._bounds = sorted({bound for low, high, _ in intervals for bound in (low, high) if bound is not None})
        self._slots: list[list[K]] = [[] for _ in range(2 * len(self._bounds) + 1)]

    def fill(self, most: int) -> bool:
        """Whether the table has no more than so many entries; only then it can be used."""
        spans = [
            (0 if low is None else self._slot(low), len(self._slots) - 1 if high is None else self._slot(high), key)
            for low, high, key in self._intervals
        ]
        if sum(last - first + 1 for first, last, _ in spans) > most:
            return False
        for first, last, key in spans:
            for slot in range(first, last + 1):
                self._slots[slot].append(key)
        return True

    def collect(self, value: int | float | Decimal | str, found: set[K]) -> None:
        found.update(self._slots[self._slot(value)])

    def _slot(self, value: Any) -> int:
        place = bisect.bisect_left(self._bounds, value)
        at_bound = place < len(self._bounds) and self._bounds[place] == value
        return 2 * place + 1 if at_bound else 2 * place


class _IntervalTree(Generic[K]):
    """Intervals of one field as a centred interval tree."""

    def __init__(self, intervals: "list[_Interval[K]]") -> None:
        bounds = sorted(bound for low, high, _ in intervals for bound in (low, high) if bound is not None)
        self._centre = bounds[len(bounds) // 2]
        left, right, here = [], [], []
        for interval in intervals:
            low, high, _ = interval
            if high is not None and high < self._centre:
                left.append(interval)
            elif low is not None and low > self._centre:
                right.append(interval)
            else:
                here.append(interval)
        # Open ends come first, since they hold for every value on their side.
        by_low = sorted(((low, key) for low, _, key in here if low is not None), key=lambda pair: pair[0])
        by_high = sorted(((high, key) for _, high, key in here if high is not None), key=lambda pair: pair[0])
        self._open_low = [key for low, _, key in here if low is None]
        self._open_high = [key for _, high, key in here if high is None]
        self._lows, self._low_keys = [low for low, _ in by_low], [key for _, key in by_low]
        self._highs, self._high_keys = [high for high, _ in by_high], [key for _, key in by_high]
        self._left = _IntervalTree(left) if left else None
        self._right = _IntervalTree(right) if right else None

    def collect(self, value: int | float | Decimal | str, found: set[K]) -> None:
        node: _IntervalTree[K] | None = self
        while node is not None:
            if value <= node._centre:
                # Every interval here reaches the centre, so only its lower end decides.
                found.update(node._open_low)
                found.update(node._low_keys[: bisect.bisect_right(node._lows, value)])
                node = node._left if value < node._centre else None
            else:
                found.update(node._open_high)
                found.update(node._high_keys[bisect.bisect_left(node._highs, value) :])
                node = node._right
