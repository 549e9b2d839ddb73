import pytest

from backend.domain import paths


@pytest.mark.parametrize(
    ("text", "steps"),
    [("a.b", ("a", "b")), ("/a/b", ("a", "b")), ("/a~1b/c~0d", ("a/b", "c~d")), ("a.0", ("a", "0"))],
)
def test_both_forms_are_read(text: str, steps: tuple[str, ...]) -> None:
    assert paths.parse_path(text) == steps


def test_an_empty_step_is_refused() -> None:
    with pytest.raises(paths.PathError):
        paths.parse_path("a..b")


def test_get_walks_objects_and_lists() -> None:
    document = {"a": [{"b": 1}]}
    assert paths.get(document, ("a", "0", "b")) == 1
    assert paths.get(document, ("a", "1", "b")) is paths.MISSING
    assert paths.get(document, ("a", "x")) is paths.MISSING


def test_put_makes_objects_on_the_way() -> None:
    document: dict[str, object] = {}
    paths.put(document, ("a", "b"), 1)
    assert document == {"a": {"b": 1}}


def test_put_refuses_to_walk_through_a_value() -> None:
    with pytest.raises(paths.PathError, match="not an object"):
        paths.put({"a": 1}, ("a", "b"), 2)


def test_remove_takes_the_value_out() -> None:
    document = {"a": {"b": 1}, "c": [1, 2]}
    assert paths.remove(document, ("a", "b")) == 1
    assert paths.remove(document, ("c", "0")) == 1
    assert paths.remove(document, ("x", "y")) is paths.MISSING
    assert document == {"a": {}, "c": [2]}
