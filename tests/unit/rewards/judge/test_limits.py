"""mortal_steps.rewards.judge.limits: no 60 seconds have more than is allowed."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mortal_steps.rewards.judge.limits import (
    WINDOW_S,
    Allowed,
    Clock,
    NoRoomError,
    ProcessLimits,
)
from tests.support.clock import FakeClock


@given(
    amounts=st.lists(st.integers(1, 60), min_size=1, max_size=40),
    limit=st.integers(1, 50),
    gaps=st.lists(st.floats(0, 30), min_size=40, max_size=40),
)
def test_no_minute_has_more_tokens_than_allowed(
    amounts: list[int], limit: int, gaps: list[float]
) -> None:
    time = FakeClock()
    limits = ProcessLimits(Allowed(tokens_per_minute=limit), time.clock)
    taken: list[tuple[float, int]] = []
    for amount, gap in zip(amounts, gaps, strict=False):
        time.sleep(gap)
        with limits.permit(amount, until=1e9):
            taken.append((time.now(), min(amount, limit)))
    for start, _ in taken:
        assert sum(n for at, n in taken if start <= at < start + WINDOW_S) <= limit


def test_a_request_goes_at_once_while_there_is_room_and_waits_for_no_longer_than_it_must() -> None:
    time = FakeClock()
    limits = ProcessLimits(Allowed(requests_per_minute=3), time.clock)
    for _ in range(3):
        with limits.permit(5, until=1e9):
            assert time.now() == 0
    with limits.permit(5, until=1e9):
        assert time.now() == pytest.approx(WINDOW_S, abs=0.01)


def test_tokens_are_corrected_to_what_the_answer_took() -> None:
    time = FakeClock()
    limits = ProcessLimits(Allowed(tokens_per_minute=100), time.clock)
    with limits.permit(90, until=1e9) as taken:
        taken.amount = 10
    with limits.permit(90, until=1e9):
        assert time.now() == 0


def test_who_would_wait_for_too_long_is_told_by_which_limit() -> None:
    time = FakeClock()
    limits = ProcessLimits(Allowed(tokens_per_minute=100), time.clock)
    with (
        limits.permit(80, until=30),
        pytest.raises(NoRoomError, match="tokens_per_minute"),
        limits.permit(80, until=30),
    ):
        pass
    assert time.now() == 0


def test_no_more_run_at_a_time_than_allowed() -> None:
    limits = ProcessLimits(Allowed(concurrency=2), Clock())
    inside, most = [0], [0]
    counting = threading.Lock()

    def ask() -> None:
        for _ in range(20):
            with limits.permit(1, until=Clock().now() + 60):
                with counting:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                threading.Event().wait(0.001)
                with counting:
                    inside[0] -= 1

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] == 2


def test_processes_that_share_limits_have_a_part_each_and_never_nothing() -> None:
    allowed = Allowed(concurrency=8, requests_per_minute=3)
    assert allowed.shared_by(1) == allowed
    assert allowed.shared_by(4) == Allowed(concurrency=2, requests_per_minute=1)
