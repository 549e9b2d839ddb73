from decimal import Decimal
from typing import Any

from backend.domain.diff import Change, changes, differences
from backend.domain.paths import MISSING


def test_equal_documents_have_no_changes() -> None:
    assert changes({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}) == []


def test_fields_added_changed_and_removed() -> None:
    assert changes({"a": 1, "b": {"c": 1}, "gone": 2}, {"a": 1, "b": {"c": 3}, "new": []}) == [
        Change("b.c", 1, 3),
        Change("gone", 2, None),
        Change("new", None, []),
    ]


def test_named_items_are_followed_when_others_come_before_them() -> None:
    erp, log = {"name": "erp", "queue": 1}, {"name": "log"}
    assert changes({"outputs": [erp]}, {"outputs": [log, {**erp, "queue": 2}]}) == [
        Change("outputs.erp.queue", 1, 2),
        Change("outputs.log", None, log),
    ]


def test_unnamed_items_are_compared_by_place() -> None:
    assert changes([1, 2], [1, 3, 4]) == [Change("1", 2, 3), Change("2", None, 4)]


def test_another_kind_of_value_is_one_change() -> None:
    assert changes({"a": [1]}, {"a": {"0": 1}}) == [Change("a", [1], {"0": 1})]


def test_items_of_the_same_name_are_all_compared() -> None:
    before, after = [{"name": "a", "n": 1}, {"name": "a", "n": 2}], [{"name": "a", "n": 3}, {"name": "a", "n": 2}]
    assert changes(before, after) == [Change("0.n", 1, 3)]


def test_differences_tell_null_from_nothing_and_true_from_one() -> None:
    assert differences({"a": None, "b": True, "c": 1}, {"b": 1, "c": Decimal("1.0"), "d": None}) == [
        ("a", None, MISSING),
        ("b", True, 1),
        ("d", MISSING, None),
    ]
    assert changes({"a": None}, {"d": None}) == []


def test_documents_that_cannot_be_followed_differ_as_a_whole() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    [(path, _, after)] = differences(deep, deep[0])
    assert path == ""
    assert after is deep[0]
