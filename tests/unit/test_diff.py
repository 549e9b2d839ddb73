from backend.domain.diff import Change, changes


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
