"""What documents change in a multiset of records."""

from collections import Counter

import pytest

from backend.change_streams.changes import Changes, Deltas, LastByKey
from backend.collections.documents import Document
from backend.domain import json
from backend.domain.cdc import Format

FORM = Format({"type": "record", "name": "Thing", "fields": [{"name": "n", "type": "long"}]})


def document(key: bytes | None, n: int, *, deleted: bool = False) -> Document:
    return Document(0, 0, key, b'{"n":%d}' % n, deleted=deleted)


def changed(changes: Changes, *documents: Document) -> Counter[int]:
    """The numbers that come and go."""
    diffs: Counter[int] = Counter()
    for datum, diff in changes.of(documents):
        diffs[FORM.document(datum)["n"]] += diff
    return diffs


def test_an_update_takes_the_former_record_back() -> None:
    changes = LastByKey(FORM)
    assert changed(changes, document(b"a", 1), document(b"b", 2), document(b"a", 3)) == {2: 1, 3: 1}
    assert changed(changes, document(b"a", 3)) == {3: 1}, "Nothing was committed."
    changes.commit()
    assert changed(changes, document(b"a", 4)) == {3: -1, 4: 1}
    assert changed(changes, document(b"a", 3)) == {}
    assert changed(changes, document(b"a", 0, deleted=True), document(b"c", 0, deleted=True)) == {3: -1}
    changes.commit()
    assert changed(changes, document(b"a", 5)) == {5: 1}


def test_former_records_are_restored_from_the_log() -> None:
    changes = LastByKey(FORM)
    changes.restore([document(b"%d" % n, n) for n in range(5000)])
    changes.restore([document(b"7", 0, deleted=True), document(None, 1)])
    assert changed(changes, document(b"7", 8)) == {8: 1}
    assert changed(changes, document(b"4999", 3)) == {4999: -1, 3: 1}
    assert changed(changes, document(None, 2)) == {1: -1, 2: 1}


@pytest.mark.parametrize(
    "value", [b"[]", b"{", b'{"n":1}', b'{"record":{"n":1},"delta":0}', b'{"record":{},"delta":1}']
)
def test_differences_that_say_nothing_are_refused(value: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the texts are those of several libraries
        Deltas(FORM).check(Document(0, 0, None, value))


def test_differences_are_summed_up_by_the_stream() -> None:
    values = [json.dumps({"record": {"n": n}, "delta": delta}) for n, delta in ((1, 2), (2, -1), (1, -2))]
    assert changed(Deltas(FORM), *(Document(0, 0, None, value) for value in values)) == {1: 0, 2: -1}
