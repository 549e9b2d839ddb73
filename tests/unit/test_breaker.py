from backend.domain.breaker import PROBE_SECONDS, Breaker, BreakerPolicy, BreakerState


def policy(**fields: float) -> BreakerPolicy:
    return BreakerPolicy.model_validate({"errors": 5, "window_seconds": 60, "open_seconds": 900} | fields)


def test_neighbours_7_five_errors_within_a_minute_open_it_for_a_quarter_of_an_hour() -> None:
    breaker = Breaker(policy())
    for second in (0, 30, 61, 62, 63):
        breaker.failed(second, probe=False)
    assert breaker.state is BreakerState.CLOSED  # the first is 63 seconds old
    breaker.failed(64, probe=False)
    assert breaker.state is BreakerState.OPEN
    assert breaker.admit(64 + 899) is BreakerState.OPEN


def test_after_the_open_time_one_message_probes_and_decides() -> None:
    for works in (True, False):
        breaker = Breaker(policy(errors=1))
        breaker.failed(0, probe=False)
        assert breaker.admit(900) is BreakerState.HALF_OPEN
        assert breaker.admit(900) is BreakerState.OPEN  # only one
        if works:
            breaker.succeeded(probe=True)
            assert breaker.admit(901) is BreakerState.CLOSED
        else:
            breaker.failed(901, probe=True)
            assert breaker.admit(901 + 899) is BreakerState.OPEN
            assert breaker.admit(901 + 900) is BreakerState.HALF_OPEN


def test_what_was_under_way_when_it_opened_decides_nothing() -> None:
    breaker = Breaker(policy(errors=1))
    breaker.failed(0, probe=False)
    breaker.failed(10, probe=False)
    breaker.succeeded(probe=False)
    assert breaker.until == 900
    assert breaker.admit(10) is BreakerState.OPEN


def test_a_probe_that_tells_nothing_is_given_up() -> None:
    breaker = Breaker(policy(errors=1))
    breaker.failed(0, probe=False)
    assert breaker.admit(900) is BreakerState.HALF_OPEN
    assert breaker.admit(900 + PROBE_SECONDS) is BreakerState.HALF_OPEN


def test_old_errors_do_not_count_after_it_has_closed() -> None:
    breaker = Breaker(policy(errors=2))
    breaker.failed(0, probe=False)
    breaker.failed(1, probe=False)
    breaker.admit(901)
    breaker.succeeded(probe=True)
    breaker.failed(902, probe=False)
    assert breaker.state is BreakerState.CLOSED


def test_neighbours_7_a_message_that_was_delivered_after_all_is_no_error() -> None:
    breaker = Breaker(policy(errors=3))
    for second, message in enumerate(("a", "b")):
        breaker.failed(second, probe=False, message=message)
    breaker.recovered("a")
    breaker.failed(2, probe=False, message="c")
    assert breaker.state is BreakerState.CLOSED
    breaker.failed(3, probe=False, message="d")
    assert breaker.state is BreakerState.OPEN
