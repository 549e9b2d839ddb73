from hypothesis import given
from hypothesis import strategies as st

from backend.delivery.results import Record
from spark_jobs.streaming.window import PartitionWindow


def record(name: str) -> Record:
    return Record(name, None, b"", [])


def test_only_the_finished_prefix_is_taken_with_its_records() -> None:
    window = PartitionWindow()
    first, second, third = (window.add(offset) for offset in (5, 7, 8))
    second.records = [record("b")]
    assert window.take_done() == (None, [])
    first.records = []
    assert window.take_done() == (8, [record("b")])
    assert len(window) == 1
    third.records = [record("c")]
    assert window.take_done() == (9, [record("c")])


@given(st.permutations(range(20)), st.sets(st.integers(0, 19)))
def test_whatever_the_order_each_record_is_taken_once_and_in_order(order: list[int], looks: set[int]) -> None:
    window = PartitionWindow()
    entries = [window.add(offset) for offset in range(20)]
    taken: list[str] = []
    committed = 0
    for step, index in enumerate(order):
        entries[index].records = [record(str(index))]
        if step in looks or step == 19:
            offset, records = window.take_done()
            taken += [r.topic for r in records]
            if offset is not None:
                assert offset > committed
                committed = offset
            assert taken == [str(n) for n in range(committed)]
    assert committed == 20
