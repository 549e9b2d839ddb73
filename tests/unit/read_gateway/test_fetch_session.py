"""Incremental fetch sessions."""

from typing import Any

import pytest

from backend.kafka.gateway.errors import KafkaError
from backend.kafka.gateway.fetch_session import FetchSession
from backend.kafka.wire import codec
from backend.kafka.wire.api import ApiKey, ErrorCode
from backend.kafka.wire.structs import Struct

_FETCH = codec.request_type(ApiKey.FETCH)
_TOPIC = _FETCH.type_of("topics")
_PARTITION = _TOPIC.type_of("partitions")
_FORGOTTEN = _FETCH.type_of("forgotten_topics_data")


def request(session: int, epoch: int, *partitions: int, offset: int = 0, forgotten: Any = ()) -> Struct:
    topics = [_TOPIC(topic="t", partitions=[_PARTITION(partition=n, fetch_offset=offset) for n in partitions])]
    dropped = [_FORGOTTEN(topic="t", partitions=list(forgotten))] if forgotten else []
    return _FETCH(session_id=session, session_epoch=epoch, topics=topics, forgotten_topics_data=dropped)


def test_a_session_remembers_what_is_wanted() -> None:
    session = FetchSession()
    wanted, incremental = session.update(request(0, 0, 0, 1, 2))
    assert (list(wanted), incremental) == ([("t", 0), ("t", 1), ("t", 2)], False)
    wanted, incremental = session.update(request(session.id, 1, 1, offset=7, forgotten=[0]))
    assert incremental
    assert {key: partition.request.fetch_offset for key, partition in wanted.items()} == {("t", 2): 0, ("t", 1): 7}
    session.served(("t", 2))
    assert list(session.update(request(session.id, 2))[0]) == [("t", 1), ("t", 2)]


def test_without_a_session_everything_is_named_each_time() -> None:
    session = FetchSession()
    assert list(session.update(request(0, -1, 4))[0]) == [("t", 4)]
    assert session.id == 0
    assert list(session.update(request(0, -1, 5))[0]) == [("t", 5)]


def test_a_lost_request_and_an_unknown_session_are_noticed() -> None:
    session = FetchSession()
    session.update(request(0, 0, 0))
    with pytest.raises(KafkaError) as lost:
        session.update(request(session.id, 2))
    assert lost.value.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    with pytest.raises(KafkaError) as unknown:
        session.update(request(session.id + 1, 1))
    assert unknown.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
