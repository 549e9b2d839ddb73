"""Spark's master: in local mode as many threads as all stages together can use."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from backend.apps.jobs import spark
from backend.domain.stages import Application, stages_in

DATA_PLANE = [stage.name for stage in stages_in(Application.DATA_PLANE)]
OTHERS = len(DATA_PLANE) - 1


@pytest.fixture
def partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "partitions_of", lambda *_: 6)


@pytest.fixture
def no_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> int:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(spark, "partitions_of", fails)


def test_local_mode_has_a_thread_for_each_partition_and_each_lane_task(partitions: None) -> None:
    assert spark._master("local", DATA_PLANE, 1) == f"local[{6 + OTHERS},4]"
    assert spark._master("local", DATA_PLANE, 3) == f"local[{6 + 3 * OTHERS},4]"
    assert spark._master("local", ["syndicating"], 2) == "local[2,4]"


def test_queries_take_turns_in_a_few(no_kafka: None) -> None:
    assert spark._master("local", ["stream_sql"], 1) == "local[8,4]"


def test_an_unavailable_kafka_does_not_prevent_the_start(no_kafka: None) -> None:
    assert spark._master("local", DATA_PLANE, 1) == f"local[{2 + OTHERS},4]"


@pytest.mark.parametrize("master", ["local[16,4]", "local[*]", "spark://master:7077", "k8s://https://10.0.0.1:6443"])
def test_what_is_set_explicitly_stays(master: str, no_kafka: None) -> None:
    assert spark._master(master, DATA_PLANE, 1) == master
