from hypothesis import given
from hypothesis import strategies as st

from backend.domain.rate_limit import RateLimit, RateLimitPolicy


def most_in_a_window(times: list[float], seconds: float) -> int:
    return max((sum(start <= time < start + seconds for time in times) for start in times), default=0)


@given(
    messages=st.integers(1, 50),
    period=st.floats(0.1, 100),
    burst=st.integers(0, 20),
    pauses=st.lists(st.tuples(st.floats(0, 30), st.integers(1, 60)), min_size=1, max_size=20),
)
def test_no_window_holds_more_than_the_limit_and_the_burst(
    messages: int, period: float, burst: int, pauses: list[tuple[float, int]]
) -> None:
    limit = RateLimit(RateLimitPolicy(messages=messages, period_seconds=period, burst=burst))
    now, used = 0.0, []
    for pause, count in pauses:
        now += pause
        used += limit.take(now, count, horizon=1.0)
    assert most_in_a_window(used, period) <= messages + burst


def test_the_limit_is_used_up_to_one_per_cent() -> None:
    limit = RateLimit(RateLimitPolicy(messages=100, period_seconds=1))
    used = [time for tick in range(600) for time in limit.take(tick / 10, 100, horizon=0.1)]
    assert len(used) / 60 > 98


def test_a_burst_comes_at_once_after_a_quiet_time() -> None:
    limit = RateLimit(RateLimitPolicy(messages=1, period_seconds=10, burst=4))
    assert limit.take(1000, 10, horizon=0) == [1000] * 5
    assert limit.next_at(1000) > 1009


@given(burst=st.integers(0, 20), used=st.integers(0, 30), pause=st.integers(0, 40))
def test_as_many_are_available_as_may_be_taken_at_once(burst: int, used: int, pause: int) -> None:
    limit = RateLimit(RateLimitPolicy(messages=1, period_seconds=1, burst=burst))
    limit.take(1000, used, horizon=30)
    now = 1000.5 + pause
    assert limit.available(now) == len(limit.take(now, 100, horizon=0))
