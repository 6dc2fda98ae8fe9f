"""The verdict on two models, and the words of it."""

from dataclasses import replace

import pytest

from mortal_steps.promotion.comparison import Comparison, by_threshold, comparison_page
from mortal_steps.registry.registry import ModelVersion
from mortal_steps.statistics.paired import compare

SEED = (42, 0)
COMMAND = "mortal promote new --name best --models-dir models"
CANDIDATE = ModelVersion(
    id="new-0",
    run_id="new",
    run_uid="0" * 32,
    runs=("new",),
    sha256="0" * 64,
    weights_sha256="1" * 64,
)
BEFORE = [1.0] * 120 + [0.0] * 80


def comparison(scores, others=BEFORE, **changes):
    given = {
        "candidate": CANDIDATE,
        "metrics": {"reward": sum(scores) / len(scores)},
        "incumbent": None,
        "against": {"reward": sum(others) / len(others)},
        "num_problems": len(scores),
        "paired": compare(scores, others, SEED),
    }
    return Comparison(**{**given, **changes})


def test_a_model_is_promoted_that_is_better_on_the_same_problems():
    """16 problems of 200 are new; two separate intervals would overlap."""
    better = comparison([1.0] * 136 + [0.0] * 64)
    assert better.paired.low == pytest.approx(0.045, abs=0.005)
    verdict = by_threshold(better, 0.0, COMMAND)
    assert verdict.promote
    assert verdict.why == (
        f"reward 0.6800, better by 0.080 [{better.paired.low:.3f}, {better.paired.high:.3f}] on "
        "the same 200 problems, McNemar's p < 0.001; the lower end is above +0.0000"
    )
    assert by_threshold(better, 0.04, COMMAND).promote
    assert not by_threshold(better, 0.06, COMMAND).promote, "the gain is 0.08, and may be 0.05"


def test_a_gain_by_luck_is_refused():
    """Ten problems are won and eight lost."""
    lucky = comparison([0.0] * 8 + [1.0] * 122 + [0.0] * 70)
    assert lucky.gain == pytest.approx(0.01)
    verdict = by_threshold(lucky, 0.0, COMMAND)
    assert not verdict.promote
    assert "no clear difference: +0.010" in verdict.why
    assert "the lower end is not above +0.0000" in verdict.why
    assert by_threshold(lucky, -0.05, COMMAND).promote, "it is not worse by 0.05"


def test_an_equal_model_is_not_better_and_shown_not_to_be_much_worse():
    equal = comparison(BEFORE)
    assert not by_threshold(equal, 0.0, COMMAND).promote
    assert by_threshold(equal, -0.02, COMMAND).promote
    assert not by_threshold(comparison([0.0] * 100 + [1.0] * 100), -0.02, COMMAND).promote


@pytest.mark.parametrize(("min_gain", "promote"), [(0.08, True), (0.081, False)])
def test_scores_that_are_not_known_by_problem_are_compared_by_the_gain(min_gain, promote):
    """Those of a fork before its first step are its parent's."""
    means = comparison([1.0] * 17 + [0.0] * 8, BEFORE[:0] or [0.6] * 25, paired=None)
    verdict = by_threshold(means, min_gain, COMMAND)
    assert verdict.promote is promote
    assert "gain +0.0800" in verdict.why and "there is no interval" in verdict.why


def test_a_first_model_has_nothing_to_beat():
    first = comparison(BEFORE, against=None, paired=None)
    assert by_threshold(first, 0.5, COMMAND).promote
    nothing = comparison(BEFORE, metrics={}, paired=None)
    assert not by_threshold(nothing, -1.0, COMMAND).promote


def test_the_page_says_what_the_numbers_mean():
    page = comparison_page(comparison([1.0] * 136 + [0.0] * 64), "name", "Waits.")
    assert "The candidate's reward: better by 0.080 [" in page
    assert "on the same 200 problems" in page


def test_nothing_is_better_than_a_model_in_use_of_which_nothing_could_be_scored():
    """As while the service that its reward functions ask is away."""
    unknown = comparison(BEFORE, incumbent=CANDIDATE, against={"rewards/judge/masked": 200.0})
    verdict = by_threshold(replace(unknown, paired=None), -1.0, COMMAND)
    assert not verdict.promote
    assert verdict.why.startswith("new-0, in use, has no reward on these problems: nothing is")
    assert f"`{COMMAND} --yes`" in verdict.why, "or no model is ever promoted"


def test_a_comparison_by_harnesses_alone_speaks_of_no_held_out_problems():
    of_a_harness = comparison(BEFORE, num_problems=0, decides="gsm8k")
    page = comparison_page(of_a_harness, "best", "")
    assert "The problems of harnesses, the same for both models" in page
    assert "0 held-out" not in page
