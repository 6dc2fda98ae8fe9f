"""Scheduled runs that could not begin in time."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.states import AwaitingRetry, Cancelled, Scheduled

from mortal_flows.skip_late_runs import newest_kept_out, was_retried, why_skipped

DUE = datetime(2026, 1, 5, 3, tzinfo=UTC)


def night(**facts) -> FlowRun:
    given = {"auto_scheduled": True, "expected_start_time": DUE, "run_count": 1, **facts}
    return FlowRun(flow_id=uuid4(), **given)


def at(minutes: float) -> datetime:
    return DUE + timedelta(minutes=minutes)


def test_a_night_that_begins_in_time_is_not_skipped():
    assert why_skipped(night(), 60, at(minutes=60)) is None
    assert why_skipped(night(), 60, at(minutes=-600)) is None, "begun by hand before its time"


def test_a_night_that_could_only_begin_the_next_morning_is_skipped_and_says_why():
    told = why_skipped(night(), 60, at(minutes=6 * 60))
    assert told is not None
    assert "due at 2026-01-05 03:00 UTC" in told
    assert "360 minutes later" in told
    assert "skip_after_min = 60" in told


@pytest.mark.parametrize(
    "facts", [{"run_count": 2}, {"auto_scheduled": False}, {"expected_start_time": None}]
)
def test_what_has_begun_before_or_somebody_asked_for_is_never_skipped(facts):
    assert why_skipped(night(**facts), 60, at(minutes=6 * 60)) is None


def cancelled(days: int, message: str = "Deployment concurrency limit reached.", **facts):
    """The night of some days later, which another one kept from its place."""
    state = State(type=StateType.CANCELLED, timestamp=at(minutes=days * DAY_MIN), message=message)
    due = DUE + timedelta(days=days)
    given = {"parameters": {"skip_after_min": 60}, "run_count": 0, **facts}
    return night(expected_start_time=due, state=state, **given)


DAY_MIN = 24 * 60
TONIGHT = at(minutes=3 * DAY_MIN + 10)


def test_of_the_nights_that_a_late_one_kept_out_the_one_in_time_begins():
    missed, tonight = cancelled(2), cancelled(3)
    assert newest_kept_out([tonight, missed], DUE, TONIGHT) is tonight
    assert newest_kept_out([missed], DUE, TONIGHT) is None


@pytest.mark.parametrize(
    "facts",
    [
        {"message": "Cancelled by somebody"},
        {"run_count": 1},
        {"auto_scheduled": False},
    ],
)
def test_what_was_cancelled_for_other_reasons_stays_so(facts):
    assert newest_kept_out([cancelled(3, **facts)], DUE, TONIGHT) is None
    since = TONIGHT + timedelta(minutes=1)
    assert newest_kept_out([cancelled(3)], since, TONIGHT) is None, "not by this one"


def test_a_night_that_the_limit_has_cancelled_may_be_retried_in_the_morning():
    """It has not begun, so only its states tell that somebody asks for it."""
    scheduled, refused = Scheduled(), Cancelled(message="Deployment concurrency limit reached.")
    assert not was_retried([scheduled, refused, Scheduled(message="It comes after all.")])
    assert was_retried([scheduled, refused, AwaitingRetry()])
