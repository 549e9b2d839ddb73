"""A pipeline's own topic, before a record is written to it. A single broker never answers as it does while a leader is
elected, so the answers are given here."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from backend.settings import KafkaSettings
from spark_jobs.streaming import transaction
from spark_jobs.streaming.transaction import TransactionalWriter


class Answers:
    """A producer that answers requests for a topic's metadata, the last answer again and again."""

    def __init__(self, *codes: int) -> None:
        self.requests = 0
        self._codes = codes

    def list_topics(self, topic: str, _seconds: float) -> Any:
        code = self._codes[min(self.requests, len(self._codes) - 1)]
        self.requests += 1
        error = KafkaError(code) if code != KafkaError.NO_ERROR else None
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error)})


def writer(producer: Answers) -> TransactionalWriter:
    kafka = KafkaSettings(bootstrap_servers="127.0.0.1:9")
    made = TransactionalWriter(kafka, "id", "group", lambda: None, threading.Event())
    made._producer = producer  # type: ignore[assignment]
    return made


def test_an_error_that_passes_is_no_reason_to_refuse_a_record() -> None:
    producer = Answers(KafkaError.LEADER_NOT_AVAILABLE, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NO_ERROR)
    assert writer(producer)._topic_error("own") is None
    assert producer.requests == 3


@pytest.mark.parametrize(
    "code",
    [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION, KafkaError.TOPIC_AUTHORIZATION_FAILED],
    ids=["missing", "invalid", "forbidden"],
)
def test_an_error_that_stays_is(code: int) -> None:
    producer = Answers(code)
    error = writer(producer)._topic_error("own")
    assert error is not None
    assert error.code() == code
    assert producer.requests == 1


def test_an_error_that_does_not_pass_holds_up_others_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "_PASSING_SECONDS", 0.3)
    producer = Answers(KafkaError.LEADER_NOT_AVAILABLE)
    made = writer(producer)
    assert made._topic_error("own") is not None
    requests = producer.requests
    assert requests > 1
    assert made._topic_error("own") is not None
    assert producer.requests == requests + 1
