"""Scheduled runs that could not begin in time."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun

from mortal_flows.deployed import why_skipped

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
