"""Two models on the same problems; numbers to compare with are statsmodels 0.15's, scipy 1.17's."""

import pytest

from mortal_steps.statistics.paired import compare, mcnemar

SEED = (7, 120)
BETTER = [float(i * 7 % 10 < 8) for i in range(200)]
WORSE = [float(i * 7 % 10 < 7) if i % 9 else float(i % 2) for i in range(200)]


@pytest.mark.parametrize(
    ("num_better", "num_worse", "p"),
    [
        (0, 0, 1.0),
        (4, 0, 0.125),
        (5, 1, 0.21875),
        (12, 2, 0.012939453125),
        (14, 30, 0.022628841205914796),
        (7, 7, 1.0),
        (1200, 1100, 0.03896685268382058),
    ],
)
def test_mcnemars_p_is_exact(num_better, num_worse, p):
    assert mcnemar(num_better, num_worse) == pytest.approx(p, abs=1e-14)


def test_a_difference_has_the_bootstrap_over_problems_and_mcnemars_p():
    found = compare(BETTER, WORSE, SEED)
    assert found.difference == pytest.approx(0.13)
    assert (found.low, found.high) == pytest.approx((0.08, 0.18))
    assert found.p == pytest.approx(8.67992639541626e-07)
    assert found.num_problems == 200
    turned = compare(WORSE, BETTER, SEED)
    assert turned.difference == pytest.approx(-0.13) and turned.p == found.p


def test_a_gain_on_the_same_problems_is_seen_where_two_separate_intervals_overlap():
    """Eight problems of 100 are new, and none is lost."""
    before = [1.0] * 60 + [0.0] * 40
    after = [1.0] * 68 + [0.0] * 32
    found = compare(after, before, SEED)
    assert 0.02 < found.low < 0.08 < found.high < 0.15
    assert found.p == pytest.approx(2 / 2**8)


def test_a_problem_that_one_of_them_could_not_score_takes_no_part():
    found = compare([1.0, None, 0.0, 1.0], [0.0, 0.0, None, 1.0], SEED)
    assert (found.num_problems, found.difference) == (2, 0.5)
    assert compare([None], [1.0], SEED) is None


def test_continuous_scores_have_no_p():
    found = compare([0.5, 0.25, 1.0], [0.25, 0.25, 0.0], SEED)
    assert found.p is None and found.low <= found.difference <= found.high


def test_equal_answers_are_no_proof_of_equal_models():
    same = compare(BETTER, BETTER, SEED)
    assert (same.difference, same.p) == (0.0, 1.0)
    assert (same.low, same.high) == pytest.approx((-0.01884532637726658, 0.01884532637726658))
    all_gained = compare([1.0] * 50, [0.0] * 50, SEED)
    assert 0.9 < all_gained.low < 1.0 == all_gained.high
    rounded = compare([0.3, 0.1 + 0.2, 0.5], [0.1, 0.1, 0.3], SEED)
    assert (rounded.low, rounded.high) == (None, None)
    unknown = compare([0.3] * 5, [0.3] * 5, SEED)
    assert (unknown.difference, unknown.low, unknown.high) == (0.0, None, None)


def test_models_are_compared_on_as_many_problems():
    with pytest.raises(ValueError, match="shorter"):
        compare([1.0, 0.0], [1.0], SEED)
