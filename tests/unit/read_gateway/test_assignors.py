"""The assignors, and members on their way to a new assignment."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from backend.kafka.gateway.groups.assignors import ASSIGNORS, Partition, range_, uniform
from backend.kafka.gateway.groups.consumer_member import ConsumerMember

_A, _B = UUID(int=1), UUID(int=2)
_COUNTS = {_A: 5, _B: 3}

_SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from(["m1", "m2", "m3", "m4"]),
    st.dictionaries(st.sampled_from([_A, _B]), st.none(), max_size=2).map(lambda ts: {t: _COUNTS[t] for t in ts}),
    min_size=1,
)


@given(_SUBSCRIPTIONS, _SUBSCRIPTIONS, st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_has_exactly_one_member_that_wants_it(
    before: dict[str, dict[UUID, int]], after: dict[str, dict[UUID, int]], name: str
) -> None:
    former = ASSIGNORS[name](before, {})
    assigned = ASSIGNORS[name](after, former)
    given_away = [partition for owned in assigned.values() for partition in owned]
    wanted = {(topic, n) for topics in after.values() for topic, count in topics.items() for n in range(count)}
    assert sorted(given_away) == sorted(wanted)
    assert assigned.keys() == after.keys()
    assert all(topic in after[member] for member, owned in assigned.items() for topic, _ in owned)


def test_uniform_moves_only_what_has_to_move() -> None:
    everybody = {member: {_A: 5, _B: 3} for member in ("m1", "m2")}
    two = uniform(everybody, {})
    assert sorted(map(len, two.values())) == [4, 4]
    three = uniform({**everybody, "m3": {_A: 5, _B: 3}}, two)
    assert sorted(map(len, three.values())) == [2, 3, 3]
    assert all(three[member] < two[member] for member in two)


def test_range_gives_equal_partitions_of_topics_to_the_same_member() -> None:
    assigned = range_({"m1": {_A: 4, _B: 4}, "m2": {_A: 4, _B: 4}}, {})
    assert assigned["m1"] == {(topic, number) for topic in (_A, _B) for number in (0, 1)}


def _member(*partitions: int) -> ConsumerMember:
    member = ConsumerMember("m", None, None, "client", "host", epoch=1)
    member.assigned = _set(*partitions)
    return member


def _set(*numbers: int) -> set[Partition]:
    return {(_A, number) for number in numbers}


def test_a_member_gives_back_before_it_is_given_more() -> None:
    member = _member(0, 1)
    assert member.reconcile(_set(1, 2), 2, None, set())
    assert (member.epoch, member.assigned, member.revoking) == (1, _set(1), _set(0))
    assert not member.reconcile(_set(1, 2), 2, _set(0, 1), set())  # it still has what it is to give back
    assert member.reconcile(_set(1, 2), 2, _set(1), set())
    assert (member.epoch, member.assigned, member.revoking) == (2, _set(1, 2), set())


def test_a_member_waits_for_what_others_still_hold() -> None:
    member = _member(0)
    member.reconcile(_set(0, 1), 2, None, _set(1))
    assert (member.epoch, member.assigned) == (2, _set(0))
    assert member.reconcile(_set(0, 1), 2, None, set())
    assert member.assigned == _set(0, 1)
