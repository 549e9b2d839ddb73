"""Names of marker files."""

import pytest

from backend.domain.markers import checked_marker, is_marker, marker_of


@pytest.mark.parametrize(
    ("template", "path", "marker"),
    [
        ("{name}.done", "a/b/orders.csv.gz", "a/b/orders.csv.gz.done"),
        ("{stem}.done", "a/b/orders.csv.gz", "a/b/orders.done"),
        ("{stem}.done", "orders-1.2.jsonl", "orders-1.2.done"),
        ("{stem}.done", "orders", "orders.done"),
        ("{stem}.done", ".gz", ".gz.done"),
        ("_SUCCESS", "a/b/part-1.parquet", "a/b/_SUCCESS"),
        ("_SUCCESS", "part-1.parquet", "_SUCCESS"),
        ("ok-{stem}-{name}", "a/b.csv", "a/ok-b-b.csv"),
    ],
)
def test_a_marker_lies_beside_its_file_and_is_known_as_one(template: str, path: str, marker: str) -> None:
    assert checked_marker(template) == template
    assert marker_of(template, path) == marker
    assert is_marker(template, marker)
    assert not is_marker(template, path)


@pytest.mark.parametrize("template", ["{name}", "{stem}{name}", "{id}.done", "a/{name}", "a b", ".", "..", "{name"])
def test_what_cannot_be_a_marker_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r"marker|placeholder"):
        checked_marker(template)
