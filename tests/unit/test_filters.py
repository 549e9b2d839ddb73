from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from backend.domain import json
from backend.domain.filters.conditions import Condition, distance, kind_of
from backend.domain.filters.fields import IndexedField, index_of
from backend.domain.filters.index import PredicateIndex

conditions: TypeAdapter[Condition] = TypeAdapter(Condition)

names = st.sampled_from(["a", "b", "c"])
numbers = st.integers(-3, 3) | st.sampled_from([0.5, 1.1, 2**63, -1.5])
texts = st.sampled_from(["", "a", "ab", "abc", "b", "2026-01-01T00:00:00Z"])
scalars = st.booleans() | numbers | texts
places = st.tuples(st.floats(-90, 90), st.floats(-180, 180)).map(list)
leaves = st.one_of(
    st.builds(
        lambda f, t, v: {"type": t, "field": f, "value": v}, names, st.sampled_from(["equals", "not_equals"]), scalars
    ),
    st.builds(
        lambda f, t, v: {"type": t, "field": f, "value": v},
        names,
        st.sampled_from(["less_than", "less_or_equal", "greater_than", "greater_or_equal"]),
        numbers | texts,
    ),
    st.builds(lambda f, v: {"type": "in", "field": f, "values": v}, names, st.lists(scalars, min_size=1, max_size=3)),
    st.builds(lambda f, v: {"type": "prefix", "field": f, "value": v}, names, texts.filter(bool)),
    st.builds(lambda f, v: {"type": "regex", "field": f, "pattern": v}, names, st.sampled_from(["^a", "b$", "(a+)+b"])),
    st.builds(lambda f: {"type": "exists", "field": f}, names),
    st.builds(
        lambda f, p, k: {"type": "near", "field": f, "latitude": p[0], "longitude": p[1], "kilometres": k},
        names,
        places,
        st.sampled_from([1.0, 5000.0]),
    ),
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.builds(
            lambda t, c: {"type": t, "conditions": c},
            st.sampled_from(["all", "any"]),
            st.lists(inner, min_size=1, max_size=4),
        )
        | st.builds(lambda c: {"type": "not", "condition": c}, inner)
    ),
    max_leaves=8,
)
indexes = st.dictionaries(names, scalars | places, max_size=3)


def naive(condition: dict[str, Any], index: dict[str, Any]) -> bool:  # noqa: PLR0912
    """What the conditions mean, written once more."""
    match condition["type"]:
        case "all":
            return all(naive(part, index) for part in condition["conditions"])
        case "any":
            return any(naive(part, index) for part in condition["conditions"])
        case "not":
            return not naive(condition["condition"], index)
    if condition["field"] not in index:
        return False
    actual = index[condition["field"]]

    def same(value: Any) -> bool:
        return kind_of(actual) == kind_of(value) and str(actual) == str(value)

    match condition["type"]:
        case "exists":
            return True
        case "equals":
            return same(condition["value"])
        case "not_equals":
            return not same(condition["value"])
        case "in":
            return any(map(same, condition["values"]))
        case "prefix":
            return isinstance(actual, str) and actual[: len(condition["value"])] == condition["value"]
        case "regex":
            return (
                isinstance(actual, str)
                and {
                    "^a": actual[:1] == "a",
                    "b$": actual[-1:] == "b",
                    "(a+)+b": "ab" in actual,
                }[condition["pattern"]]
            )
        case "near":
            here = (condition["latitude"], condition["longitude"])
            return (
                isinstance(actual, list)
                and distance(here, (float(actual[0]), float(actual[1]))) <= condition["kilometres"]
            )
    value = condition["value"]
    if kind_of(actual) != kind_of(value):
        return False
    if kind_of(value) == "number":
        actual, value = Decimal(str(actual)), Decimal(str(value))
    return {
        "less_than": actual < value,
        "less_or_equal": actual <= value,
        "greater_than": actual > value,
        "greater_or_equal": actual >= value,
    }[condition["type"]]


@settings(max_examples=400)
@given(st.lists(trees, max_size=12), st.lists(indexes, max_size=4))
def test_the_index_finds_what_trying_every_filter_finds(
    filters: list[dict[str, Any]], documents: list[dict[str, Any]]
) -> None:
    known = PredicateIndex([(n, conditions.validate_python(tree)) for n, tree in enumerate(filters)])
    for raw in documents:
        index = json.loads(json.dumps(raw))
        expected = [n for n, tree in enumerate(filters) if naive(tree, index)]
        assert sorted(known.matches(index)) == expected
        assert set(expected) <= known.candidates(index)


@given(trees)
def test_a_condition_survives_being_stored(tree: dict[str, Any]) -> None:
    condition = conditions.validate_python(tree)
    assert conditions.validate_json(conditions.dump_json(condition)) == condition


def test_only_candidates_are_evaluated() -> None:
    filters = [(n, conditions.validate_python({"type": "equals", "field": "shop", "value": n})) for n in range(1000)]
    filters += [
        (
            1000 + n,
            conditions.validate_python(
                {
                    "type": "all",
                    "conditions": [
                        {"type": "greater_or_equal", "field": "total", "value": n},
                        {"type": "less_than", "field": "total", "value": n + 1},
                    ],
                }
            ),
        )
        for n in range(1000)
    ]
    known = PredicateIndex(filters)
    assert known.candidates({"shop": 7}) == {7}
    assert sorted(known.matches({"shop": 7, "total": Decimal("500.5")})) == [7, 1500]
    assert len(known.candidates({"total": Decimal("500.5")})) <= 2


@pytest.mark.parametrize("width", [1, 100])  # few overlap: a table; many do: a tree
def test_ranges_hold_their_ends_or_not_as_they_say(width: int) -> None:
    random = Random(width)
    filters: list[dict[str, Any]] = []
    for _ in range(300):
        low = random.randrange(-100, 100)
        lines = [
            {"type": random.choice(["greater_than", "greater_or_equal"]), "field": "a", "value": low},
            {
                "type": random.choice(["less_than", "less_or_equal"]),
                "field": "a",
                "value": low + random.randint(0, width),
            },
        ]
        filters.append({"type": "all", "conditions": lines[: random.choice([1, 2, 2]) if width > 1 else 2]})
    known = PredicateIndex([(n, conditions.validate_python(one)) for n, one in enumerate(filters)])
    for value in [Decimal(half) / 2 for half in range(-205, 410)]:
        index = {"a": value}
        assert sorted(known.matches(index)) == [n for n, one in enumerate(filters) if naive(one, index)]


def test_fields_are_indexed_by_their_types() -> None:
    fields = [
        IndexedField(name="country", path="order.country"),
        IndexedField(name="total", path="order.total", type="number"),
        IndexedField(name="paid", path="paid", type="boolean"),
        IndexedField(name="at", path="at", type="time"),
        IndexedField(name="place", path="place", type="location"),
        IndexedField(name="absent", path="absent"),
        IndexedField(name="wrong", path="paid", type="number"),
    ]
    document = json.loads(
        '{"order":{"country":"BR","total":1.10},"paid":true,"at":"2026-01-01T09:00:00-03:00","place":{"lat":-23.5,"lon":-46.6}}'
    )
    assert index_of(fields, document) == (
        b'{"country":"BR","total":1.10,"paid":true,"at":"2026-01-01T12:00:00.000000Z","place":[-23.5,-46.6]}'
    )
    assert index_of(fields, [1]) == b"{}"


@pytest.mark.parametrize(
    "condition",
    [
        {"type": "regex", "field": "a", "pattern": "(a"},
        {"type": "all", "conditions": []},
        {"type": "near", "field": "a", "latitude": 91, "longitude": 0, "kilometres": 1},
        {"type": "like", "field": "a"},
    ],
)
def test_senseless_conditions_are_refused(condition: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        conditions.validate_python(condition)
