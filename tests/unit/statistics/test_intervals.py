"""Intervals of a mean score; numbers to compare with are from statsmodels 0.15 and scipy 1.17."""

import pytest

from mortal_steps.statistics import intervals
from mortal_steps.statistics.intervals import bootstrap, interval_of, wilson

CONTINUOUS = [i * i % 17 / 16 for i in range(60)]
SEED = (7, 120)


@pytest.mark.parametrize(
    ("num_right", "num_problems", "low", "high"),
    [
        (0, 200, 0.0, 0.01884532637726658),
        (1, 5, 0.036224108632430196, 0.6244653702374748),
        (150, 200, 0.6856590168795417, 0.8049183199318249),
        (49, 50, 0.8950455641036218, 0.9964607407283538),
        (200, 200, 0.9811546736227335, 1.0),
    ],
)
def test_wilsons_interval_is_that_of_statsmodels(num_right, num_problems, low, high):
    assert wilson(num_right, num_problems) == pytest.approx((low, high), abs=1e-15)


def test_no_interval_leaves_0_and_1():
    for num_problems in (1, 2, 3, 7, 50, 999):
        for num_right in range(num_problems + 1):
            low, high = wilson(num_right, num_problems)
            assert 0 <= low <= num_right / num_problems <= high <= 1


def test_the_bootstrap_is_that_of_scipy_and_the_same_each_time(monkeypatch):
    expected = (0.40520833333333334, 0.58125)
    assert bootstrap(CONTINUOUS, SEED) == pytest.approx(expected, abs=1e-12)
    monkeypatch.setattr(intervals, "AT_ONCE", 1000)  # drawn in many parts
    assert bootstrap(CONTINUOUS, SEED) == pytest.approx(expected, abs=1e-12)
    assert bootstrap(CONTINUOUS, (8, 120)) != bootstrap(CONTINUOUS, SEED)


def test_scores_of_0_and_1_have_wilsons_interval_and_others_the_bootstrap():
    found = interval_of([1.0, 0.0, 0.0, 0.0, 0.0], SEED)
    assert (found.method, found.low) == ("wilson", pytest.approx(0.036224108632430196))
    assert interval_of(CONTINUOUS, SEED).method == "bootstrap"
    halves = interval_of([0.0, 1.0, 0.5, 1.0], SEED)
    assert halves.method == "bootstrap" and halves.low < 0.625 < halves.high


def test_scores_that_are_all_equal_are_no_proof_that_all_problems_score_so():
    all_right = interval_of([1.0] * 200, SEED)
    assert (all_right.method, all_right.low) == ("wilson", pytest.approx(0.9811546736227335))
    assert interval_of([0.5] * 200, SEED) is None
    assert interval_of([0.3, 0.1 + 0.2] * 100, SEED) is None, "they are rounded otherwise"
    assert interval_of([142.857, 142.857 + 1e-9] * 100, SEED) is None
    assert interval_of([], SEED) is None
