"""The predicate index: finds which of many filters a message matches, without evaluating each of them.

Each filter is indexed under one term that every match must fulfil: an equality is looked up in a hash table, a prefix
by its length, a range in a table or an interval tree. Only filters whose term the message fulfils are candidates, and
of a candidate only the conditions that its term does not imply are evaluated. Filters without such a term (a negation
alone) are always candidates.
"""

import bisect
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Generic, Literal, TypeVar

from backend.domain.comparison import SCALARS, exact, kind_of
from backend.domain.filters.conditions import (
    All,
    Any_,
    Comparison,
    Condition,
    Equals,
    In,
    Index,
    Not,
    Predicate,
    Prefix,
    every,
)

K = TypeVar("K", bound=Hashable)

_WIDTH = {"equality": 1.0, "prefix": 1.0, "interval": 0.1, "half_line": 0.5, "presence": 1.0}
"""Estimated fraction of the filters in one place of the index whose term a message fulfils."""


_Bound = tuple[Any, Literal[-1, 0, 1]]
"""A bound of an interval: -1 is just below the value, 1 just above it, 0 at the value itself."""


@dataclass(frozen=True)
class _Term:
    """A term that a filter can be indexed under."""

    kind_of_term: Literal["equality", "prefix", "interval", "half_line", "presence"]
    field: str
    kind: str = ""
    value: Any = None
    low: _Bound | None = None
    high: _Bound | None = None

    @property
    def shared_by(self) -> tuple[str, str, str, Any]:
        """The place in the index; filters in the same place become candidates together."""
        return self.kind_of_term, self.field, self.kind, self.value


@dataclass(frozen=True)
class _Way:
    """Terms of which every match fulfils at least one, and the conditions that remain to be evaluated then. Without
    terms nothing matches."""

    terms: list[_Term]
    rest: list[Condition]


class PredicateIndex(Generic[K]):
    """An immutable index of filters by key. When the filters change, a new index must be built."""

    def __init__(self, filters: Iterable[tuple[K, Condition]]) -> None:
        self._rests: dict[K, Predicate] = {}
        self._always: list[K] = []
        self._equal: defaultdict[tuple[str, str, Any], list[K]] = defaultdict(list)
        self._prefixes: defaultdict[str, _Prefixes[K]] = defaultdict(_Prefixes)
        self._present: defaultdict[str, list[K]] = defaultdict(list)
        intervals: defaultdict[tuple[str, str], list[_Interval[K]]] = defaultdict(list)
        entries = list(filters)
        shared = Counter(term.shared_by for _, condition in entries for term in _all_terms(condition))
        for key, condition in entries:
            way = _best_way(condition, shared)
            if way is None:
                self._always.append(key)
                self._rests[key] = condition.compile()
                continue
            if way.rest:
                self._rests[key] = every([part.compile() for part in way.rest])
            for term in set(way.terms):
                if term.kind_of_term == "equality":
                    self._equal[term.field, term.kind, term.value].append(key)
                elif term.kind_of_term == "prefix":
                    self._prefixes[term.field].add(term.value, key)
                elif term.kind_of_term == "presence":
                    self._present[term.field].append(key)
                else:
                    intervals[term.field, term.kind].append((term.low, term.high, key))
        self._intervals = {place: _lookup_of(members) for place, members in intervals.items()}

    def matches(self, index: Index) -> list[K]:
        """The keys of the filters that match the message."""
        rests = self._rests
        return [key for key in self.candidates(index) if (rest := rests.get(key)) is None or rest(index)]

    def candidates(self, index: Index) -> set[K]:
        """The keys of the filters that may match the message."""
        keys = set(self._always)
        for name, value in index.items():
            kind = kind_of(value)
            if kind in SCALARS:
                keys.update(self._equal.get((name, kind, value), ()))
                if (name, kind) in self._intervals:
                    self._intervals[name, kind].collect(value, keys)
            if kind == "text" and name in self._prefixes:
                self._prefixes[name].collect(value, keys)
            keys.update(self._present.get(name, ()))
        return keys


def _best_way(condition: Condition, shared: Counter[Any]) -> _Way | None:
    """The way that is shared with the fewest other filters; None if the filter cannot be indexed."""
    match condition:
        case All(conditions=parts):
            ways = [
                _Way(way.terms, [other for other in parts if not any(other is part for part in covered)] + way.rest)
                for covered, way in _ways_of_parts(parts, shared)
            ]
            return min(ways, key=lambda way: sum(_cost(term, shared) for term in way.terms), default=None)
        case Any_(conditions=parts):
            alternatives = [_best_way(part, shared) for part in parts]
            indexable = [way for way in alternatives if way is not None]
            if len(indexable) < len(alternatives):
                return None
            is_exact = not any(way.rest for way in indexable)
            return _Way([term for way in indexable for term in way.terms], [] if is_exact else [condition])
        case Not():
            return None
    terms = _leaf_terms(condition)
    is_exact = all(term.kind_of_term != "presence" for term in terms)
    return _Way(terms, [] if is_exact else [condition])


def _ways_of_parts(parts: list[Condition], shared: Counter[Any]) -> Iterator[tuple[list[Condition], _Way]]:
    """Each way to index a conjunction, with the parts that the way implies."""
    for part in parts:
        way = _best_way(part, shared)
        if way is not None:
            yield [part], way
    for covered, term in _intervals(parts):
        yield covered, _Way([] if term is None else [term], [])


def _all_terms(condition: Condition) -> Iterator[_Term]:
    """Every term that the filter could be indexed under."""
    match condition:
        case All(conditions=parts):
            for part in parts:
                yield from _all_terms(part)
            for _, term in _intervals(parts):
                if term is not None:
                    yield term
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
    return [_Term("presence", condition.field)]


def _half_line(comparison: Comparison) -> _Term:
    name, value, kind = comparison.field, exact(comparison.value), kind_of(comparison.value)
    match comparison.type:
        case "less_than":
            return _Term("half_line", name, kind, high=(value, -1))
        case "less_or_equal":
            return _Term("half_line", name, kind, high=(value, 0))
        case "greater_or_equal":
            return _Term("half_line", name, kind, low=(value, 0))
    return _Term("half_line", name, kind, low=(value, 1))


def _intervals(parts: list[Condition]) -> Iterator[tuple[list[Condition], _Term | None]]:
    """For each field with a lower and an upper bound: its comparisons, and the interval that they leave, or None if it
    is empty."""
    comparisons: defaultdict[tuple[str, str], list[Comparison]] = defaultdict(list)
    for part in parts:
        if isinstance(part, Comparison):
            comparisons[part.field, kind_of(part.value)].append(part)
    for (name, kind), covered in comparisons.items():
        lines = [_half_line(comparison) for comparison in covered]
        lows = [line.low for line in lines if line.low is not None]
        highs = [line.high for line in lines if line.high is not None]
        if lows and highs:
            low, high = max(lows), min(highs)
            yield [*covered], _Term("interval", name, kind, low=low, high=high) if low <= high else None


@dataclass
class _Prefixes(Generic[K]):
    """The prefixes of one field, with one lookup for each length that occurs."""

    _by_length: dict[int, dict[str, list[K]]] = field(default_factory=dict)

    def add(self, prefix: str, key: K) -> None:
        self._by_length.setdefault(len(prefix), {}).setdefault(prefix, []).append(key)

    def collect(self, value: str, keys: set[K]) -> None:
        for length, prefixes in self._by_length.items():
            keys.update(prefixes.get(value[:length], ()))


_Interval = tuple[_Bound | None, _Bound | None, K]
"""Low bound, high bound and key; unbounded where a bound is None."""

_MAX_OVERLAP = 32


def _lookup_of(intervals: "list[_Interval[K]]") -> "_Slots[K] | _IntervalTree[K]":
    """A table, which needs a single lookup, if few intervals overlap; otherwise a tree, as the table would be large."""
    slots = _Slots(intervals)
    return slots if slots.fill(_MAX_OVERLAP * len(intervals)) else _IntervalTree(intervals)


class _Slots(Generic[K]):
    """The intervals of one field as a table: the keys that apply at each bound and in each gap between two."""

    def __init__(self, intervals: "list[_Interval[K]]") -> None:
        self._intervals = intervals
        self._bounds = sorted({bound[0] for low, high, _ in intervals for bound in (low, high) if bound is not None})
        self._slots: list[list[K]] = [[] for _ in range(2 * len(self._bounds) + 1)]

    def fill(self, limit: int) -> bool:
        """Fills the table unless it would have more than ``limit`` entries; only if this returns True it can be
        used."""
        spans = [
            (
                0 if low is None else self._slot(low[0]) + low[1],
                len(self._slots) - 1 if high is None else self._slot(high[0]) + high[1],
                key,
            )
            for low, high, key in self._intervals
        ]
        if sum(last - first + 1 for first, last, _ in spans) > limit:
            return False
        for first, last, key in spans:
            for slot in range(first, last + 1):
                self._slots[slot].append(key)
        return True

    def collect(self, value: int | float | Decimal | str, keys: set[K]) -> None:
        keys.update(self._slots[self._slot(value)])

    def _slot(self, value: Any) -> int:
        place = bisect.bisect_left(self._bounds, value)
        at_bound = place < len(self._bounds) and self._bounds[place] == value
        return 2 * place + 1 if at_bound else 2 * place


class _IntervalTree(Generic[K]):
    """The intervals of one field as a centred interval tree."""

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
        # Unbounded intervals are kept apart, since they match every value on their side.
        by_low = sorted(((low, key) for low, _, key in here if low is not None), key=lambda pair: pair[0])
        by_high = sorted(((high, key) for _, high, key in here if high is not None), key=lambda pair: pair[0])
        self._open_low = [key for low, _, key in here if low is None]
        self._open_high = [key for _, high, key in here if high is None]
        self._lows, self._low_keys = [low for low, _ in by_low], [key for _, key in by_low]
        self._highs, self._high_keys = [high for high, _ in by_high], [key for _, key in by_high]
        self._left = _IntervalTree(left) if left else None
        self._right = _IntervalTree(right) if right else None

    def collect(self, value: int | float | Decimal | str, keys: set[K]) -> None:
        place = (value, 0)
        node: _IntervalTree[K] | None = self
        while node is not None:
            if place <= node._centre:
                # Every interval here reaches the centre, so only its lower end decides.
                keys.update(node._open_low)
                keys.update(node._low_keys[: bisect.bisect_right(node._lows, place)])
                node = node._left if place < node._centre else None
            else:
                keys.update(node._open_high)
                keys.update(node._high_keys[bisect.bisect_left(node._highs, place) :])
                node = node._right
