"""How far the log-probabilities of an engine may be from the actor's."""

import json
import logging
import math

import pytest

from mortal_steps.errors import WeightsMismatchError
from mortal_steps.rollout.weight_sync.canary import check_probe
from tests.support.refused import refused

LIKELY, RARE = -0.5, -6.0
ROUNDED = [0.32, 0.12, 0.1, *[0.002] * 62]
"""What two correct implementations were seen to differ by in bfloat16: rarely by much."""


class Scorer:
    """An engine that is this far off for each token."""

    def __init__(self, differences: list[float], dtype: str, logprob: float) -> None:
        self.dtype = dtype
        self._found = [logprob + difference for difference in differences]

    def score(self, token_ids: list[int]) -> list[float]:
        return self._found


@pytest.fixture
def check(tmp_path):
    def check(differences, dtype="bfloat16", *, proven, logprob=LIKELY, tolerance=1e-3):
        expected = [logprob] * len(differences)
        probe = {"token_ids": [3] * (len(expected) + 1), "logprobs": expected}
        (tmp_path / "probe.json").write_text(json.dumps(probe))
        engine = Scorer(differences, dtype, logprob)
        check_probe(engine, tmp_path, tolerance, proven=proven)

    return check


def test_one_token_that_is_far_off_is_logged_where_every_tensor_was_compared(check, caplog):
    with caplog.at_level(logging.WARNING):
        check(ROUNDED, proven=True)
    assert "up to 0.32 nats" in caplog.text


def test_it_is_refused_where_the_tensors_were_not_compared(check):
    with refused(WeightsMismatchError, "0.32", "mortal resume"):
        check(ROUNDED, proven=False)


def test_rare_tokens_may_be_farther_off(check, caplog):
    check([1.5, *[0.01] * 62], proven=False, logprob=RARE)
    with pytest.raises(WeightsMismatchError):
        check([2.0, *[0.01] * 62], proven=False, logprob=RARE)
    assert not caplog.text


@pytest.mark.parametrize("proven", [True, False])
@pytest.mark.parametrize(
    ("differences", "dtype"),
    [([0.12] * 64, "bfloat16"), ([0.0, math.nan], "bfloat16"), ([0.002] * 8, "float32")],
)
def test_a_mean_beyond_the_tolerance_is_refused(check, differences, dtype, proven):
    with pytest.raises(WeightsMismatchError):
        check(differences, dtype, proven=proven)


def test_a_wider_tolerance_lets_it_pass(check):
    check([0.12] * 64, proven=False, tolerance=0.2)
    check([0.002] * 8, "float32", proven=False, tolerance=0.01)
    check([0.4, *[0.0] * 8], proven=False, tolerance=0.5)
