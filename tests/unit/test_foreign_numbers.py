"""Numbers and statuses that other systems answer with: within bounds, or an answer that cannot be used."""

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from backend.connectors.delta_sharing.protocol import File, file_of
from backend.connectors.delta_sharing.rows import partition_values
from backend.connectors.elasticsearch.client import checked
from backend.connectors.gcs import listed
from backend.connectors.http.batch import HttpDeliverBatch, outcomes_of_lines
from backend.connectors.http.call import CallRequest, HttpCall, HttpCallOptions
from backend.connectors.http.connection import HttpConnection
from backend.connectors.http.deliver import HttpDeliver
from backend.connectors.http.options import HttpBatchOptions, HttpOptions
from backend.connectors.n8n.executions import number_of
from backend.connectors.parts.http_answers import refused
from backend.connectors.parts.http_endpoint import Endpoint
from backend.connectors.parts.kafka_cluster import Cluster, KafkaConnection
from backend.connectors.parts.oauth import lifetime_of
from backend.domain import json
from backend.domain.capabilities import DeliveryError, Receipt
from backend.domain.message import Message, new_message_id, utc_now
from backend.domain.reasons import Reason
from backend.kafka.client.producer import RECORD_FAULTS
from backend.network.http_client import Response
from spark_jobs.streaming.input_reader import plausible

TOO_LARGE = ["1e400", "1e5000", "1e300000", "1E+999999999999", "9" * 401, "-" + "9" * 401]
HOSTILE = [*TOO_LARGE, "200.9", "true", "null", '"1_0"']
"""JSON that is no number within anybody's bounds, or none at all."""

documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.decimals(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
"""Every kind of value of JSON."""


def answer(body: bytes, status: int = 207) -> Response:
    return Response(status, body, None)


def result_of(function: Callable[..., Any], *arguments: Any) -> Any:
    """What it returns, or the DeliveryError that it raises."""
    try:
        return function(*arguments)
    except DeliveryError as error:
        return error


def message() -> Message:
    return Message(new_message_id(), "p", 1, b"", b"{}", "application/json", utc_now(), ())


# A status for each line of a batch.


@pytest.mark.parametrize(
    "status",
    ["0", "99", "-1", "600", "false", "true", "200.0", "200.9", "299.99", "2e2", '"200"', '"２００"', *HOSTILE],
)
def test_neighbours_3_what_is_no_status_makes_the_batchs_answer_unusable(status: str) -> None:
    with pytest.raises(DeliveryError) as unusable:
        outcomes_of_lines(answer(b'[{"status":200},{"status":%b}]' % status.encode()), 2)
    assert (unusable.value.reason, unusable.value.retryable, unusable.value.status) == (Reason.ANSWER, True, "207")
    assert not unusable.value.about_message


@given(documents)
def test_neighbours_3_of_all_values_only_integers_from_100_to_599_are_statuses(status: Any) -> None:
    result = result_of(outcomes_of_lines, answer(json.dumps([{"status": status}])), 1)
    if type(status) is int and 100 <= status <= 599:
        [outcome] = result
        assert outcome.status == str(status)
        assert isinstance(outcome, Receipt) == (200 <= status <= 299)
    else:
        assert (result.reason, result.retryable) == (Reason.ANSWER, True)


@given(st.lists(st.integers(100, 599), min_size=1, max_size=20))
def test_neighbours_3_a_line_is_delivered_with_200_to_299(statuses: list[int]) -> None:
    body = json.dumps([{"status": status} for status in statuses])
    outcomes = outcomes_of_lines(answer(body), len(statuses))
    assert [isinstance(outcome, Receipt) for outcome in outcomes] == [200 <= status <= 299 for status in statuses]


@given(st.binary() | documents.map(json.dumps), st.integers(1, 3))
def test_neighbours_3_no_body_of_an_answer_is_an_error_of_ours(body: bytes, count: int) -> None:
    result = result_of(outcomes_of_lines, answer(body), count)
    assert result.reason == Reason.ANSWER if isinstance(result, DeliveryError) else len(result) == count


# The answer to a request.


async def _deliver(**options: Any) -> None:
    output = HttpDeliver(HttpConnection(url="https://api.example.com"), HttpOptions(**options))
    await output.open()
    try:
        await output.deliver(message())
    finally:
        await output.close()


async def _deliver_batch(**options: Any) -> list[Receipt | DeliveryError]:
    output = HttpDeliverBatch(HttpConnection(url="https://api.example.com"), HttpBatchOptions(**options))
    await output.open()
    try:
        return list(await output.deliver([message(), message()]))
    finally:
        await output.close()


async def _call() -> None:
    api = HttpCall(HttpConnection(url="https://api.example.com"), HttpCallOptions())
    await api.open()
    try:
        await api.call(CallRequest("GET", "/", None))
    finally:
        await api.close()


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[Response], None]:
    """Determines the answer to each request."""

    def answer_with(response: Response) -> None:
        async def request(*_: Any) -> Response:
            return response

        monkeypatch.setattr(Endpoint, "request", request)

    return answer_with


USES = [_deliver, _deliver_batch, _call]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("status", [0, 1, 99, 100, 101, 199, 300, 304, 400, 599, 600, 999])
async def test_neighbours_3_no_other_status_is_success(use: Any, status: int, answering: Any) -> None:
    answering(answer(b"{}", status))
    with pytest.raises(DeliveryError) as failed:
        await use()
    assert (failed.value.reason, failed.value.status) == (f"http_{status}", str(status))


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("status", [200, 201, 204, 207, 299])
async def test_neighbours_3_success_is_200_to_299(use: Any, status: int, answering: Any) -> None:
    answering(answer(b"{}", status))
    await use()


@given(st.integers(0, 199))
def test_neighbours_3_an_answer_that_is_none_is_tried_again(status: int) -> None:
    error = refused(answer(b"", status))
    assert error.retryable
    assert not error.about_message


@pytest.mark.parametrize("status", [200, 202, 207, 299])
async def test_neighbours_3_a_list_is_read_whatever_the_status_of_success(status: int, answering: Any) -> None:
    answering(answer(b'[{"status":200},{"status":422}]', status))
    delivered, failed = await _deliver_batch(batch_answer="status_per_line")
    assert delivered == Receipt("200", '{"status":200}')
    assert isinstance(failed, DeliveryError)
    assert (failed.reason, failed.about_message) == ("http_422", True)


@pytest.mark.parametrize("status", [200, 204, 207])
@pytest.mark.parametrize("body", [b"", b"ok", b"{}", b"[]", b'[{"status":200}]', b'[{"status":200},{}]', b"[200,200]"])
async def test_neighbours_3_success_without_the_list_is_unusable(status: int, body: bytes, answering: Any) -> None:
    answering(answer(body, status))
    with pytest.raises(DeliveryError) as unusable:
        await _deliver_batch(batch_answer="status_per_line")
    assert (unusable.value.reason, unusable.value.retryable) == (Reason.ANSWER, True)
    assert unusable.value.status == str(status)


async def test_neighbours_3_one_status_counts_for_the_whole_batch(answering: Any) -> None:
    answering(answer(b'[{"status":500},{"status":422}]'))
    assert [isinstance(outcome, Receipt) for outcome in await _deliver_batch()] == [True, True]


# Numbers in answers.


@given(documents, st.integers(), st.integers())
def test_neighbours_3_an_integer_is_within_its_bounds_or_refused(value: Any, low: int, high: int) -> None:
    try:
        number = json.bounded_int(value, low, high)
    except ValueError:
        assert type(value) is not int or not low <= value <= high
    else:
        assert type(number) is int
        assert number == value


@given(documents, st.integers(-(10**15), 10**15), st.integers(-(10**15), 10**15))
def test_neighbours_3_a_number_is_within_its_bounds_or_refused(value: Any, low: int, high: int) -> None:
    try:
        number = json.bounded_float(value, low, high)
    except ValueError:
        assert type(value) not in (int, Decimal) or not low <= value <= high
    else:
        assert math.isfinite(number)
        assert low <= number <= high


@pytest.mark.parametrize("written", [*TOO_LARGE, "-1", "true", '"1_0"', '"1e400"', '"soon"', "[1]", "1e11"])
def test_neighbours_3_no_token_is_valid_for_a_time_that_no_clock_has(written: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - which one is not told
        lifetime_of(json.loads(f'{{"expires_in":{written}}}'))


@pytest.mark.parametrize(
    ("written", "seconds"), [("3600", 3600.0), ('"3600"', 3600.0), ("0.5", 0.5), ("null", 300.0), ("0", 300.0)]
)
def test_neighbours_3_a_tokens_lifetime_is_read(written: str, seconds: float) -> None:
    assert lifetime_of(json.loads(f'{{"expires_in":{written}}}')) == seconds


@pytest.mark.parametrize("status", HOSTILE)
def test_neighbours_3_a_clusters_status_is_one(status: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        checked(json.loads(f'{{"status":{status}}}'))


@given(documents | st.fixed_dictionaries({"status": documents}, optional={"error": documents}))
def test_neighbours_3_a_clusters_result_has_a_status_and_a_reason(result: Any) -> None:
    try:
        taken = checked(result)
    except (KeyError, TypeError, ValueError):
        return
    assert 100 <= taken["status"] <= 599
    assert "error" in taken or taken["status"] == 404 or 200 <= taken["status"] <= 299


@pytest.mark.parametrize(
    "result",
    [{"status": 201, "result": "created"}, {"status": 404}, {"status": 409, "error": {"type": "version_conflict"}}],
)
def test_neighbours_3_a_clusters_usual_results_are_taken(result: dict[str, Any]) -> None:
    assert checked(result) == result


ACTION = {"id": "a", "url": "https://files.example.com/a", "size": 573, "version": 4, "timestamp": 1_700_000_000_000}


def test_neighbours_3_a_shared_file_is_read() -> None:
    file = file_of("add", ACTION | {"stats": '{"numRecords":7}'}, 0)
    assert (file.size, file.version, file.timestamp, file.rows) == (573, 4, 1_700_000_000_000, 7)


@pytest.mark.parametrize("number", [*TOO_LARGE, "-1", "200.9", "true", '"1_0"'])
@pytest.mark.parametrize("name", ["size", "version", "timestamp", "stats"])
def test_neighbours_3_a_shared_files_numbers_have_bounds(name: str, number: str) -> None:
    value = f'{{"numRecords":{number}}}' if name == "stats" else json.loads(number)
    with pytest.raises((ValueError, TypeError)):
        file_of("add", ACTION | {name: value}, 0)


@pytest.mark.parametrize("type_", ["integer", "long", "double", "decimal(38,0)", "boolean"])
@given(value=documents)
def test_neighbours_3_a_partitions_values_are_its_columns_or_unusable(type_: str, value: Any) -> None:
    file = File([0, 2, "a"], "", 1, {"p": value}, "insert", 0, None, None)
    result = result_of(partition_values, file, {"p": type_})
    if isinstance(result, DeliveryError):
        assert (result.reason, result.retryable) == (Reason.ANSWER, False)
    elif type_ in ("integer", "long"):
        assert result["p"] is None or -(2**63) <= result["p"] < 2**63


@pytest.mark.parametrize("size", [*HOSTILE, "1e3", "", "-1"])
def test_neighbours_3_a_stored_files_size_has_bounds(size: str) -> None:
    found = {"name": "a", "updated": "2026-01-01T00:00:00Z", "generation": "1"}
    assert listed(found | {"size": "573"}).size == 573
    with pytest.raises(DeliveryError) as unusable:
        listed(found | {"size": size})
    assert unusable.value.reason == Reason.ANSWER


def test_neighbours_3_an_executions_number_has_bounds() -> None:
    assert number_of({"id": "17"}) == number_of({"id": 17}) == 17
    for number in HOSTILE:
        with pytest.raises(ValueError):  # noqa: PT011
            number_of({"id": json.loads(number)})


@pytest.mark.parametrize("rows", [-1, 2**53 + 1, 2**63, 2**64, 10**400, math.inf, math.nan])
def test_neighbours_3_what_no_source_holds_is_not_known(rows: Any) -> None:
    assert plausible(rows) is None


@pytest.mark.parametrize("rows", [None, 0, 17, 2**53])
def test_neighbours_3_what_a_source_may_hold_is_shown(rows: int | None) -> None:
    assert plausible(rows) == rows


# Kafka's answers.


@pytest.mark.parametrize("code", sorted(RECORD_FAULTS))
def test_neighbours_3_a_fault_of_a_record_is_final_and_blames_the_message(code: int) -> None:
    cluster = Cluster(KafkaConnection(bootstrap_servers="broker:9092"))
    error = cluster.error(KafkaException(KafkaError(code)), of_record=True)
    assert (error.retryable, error.about_message) == (False, True)
    # Elsewhere, such as for a setting that the client refuses, there is no message to blame.
    assert not cluster.error(KafkaException(KafkaError(code))).about_message


@pytest.mark.parametrize(
    ("code", "retryable"),
    [
        (KafkaError._TRANSPORT, True),
        (KafkaError._MSG_TIMED_OUT, True),
        (KafkaError._QUEUE_FULL, True),
        (KafkaError.NOT_ENOUGH_REPLICAS, True),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
    ],
)
def test_neighbours_3_an_outage_blames_no_message(code: int, retryable: bool) -> None:
    cluster = Cluster(KafkaConnection(bootstrap_servers="broker:9092"))
    error = cluster.error(KafkaException(KafkaError(code)), of_record=True)
    assert (error.retryable, error.about_message) == (retryable, False)
