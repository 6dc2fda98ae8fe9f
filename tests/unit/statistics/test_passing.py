"""pass@k, without the bias of 1 - (1 - p)^k."""

import math
from itertools import combinations

import pytest

from mortal_steps.statistics.passing import pass_at


def test_it_is_the_share_of_draws_of_k_with_one_that_is_right():
    for right in range(7):
        completions = [True] * right + [False] * (6 - right)
        for k in range(1, 7):
            draws = list(combinations(completions, k))
            assert pass_at(k, 6, right) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_it_is_the_published_product():
    product = math.prod(1 - 10 / i for i in range(64 - 3 + 1, 64 + 1))
    assert pass_at(10, 64, 3) == pytest.approx(1 - product, abs=1e-14)
    assert pass_at(8, 16, 1) == 0.5  # not 1 - (15 / 16)^8, which is 0.40


def test_more_draws_than_completions_are_refused():
    with pytest.raises(ValueError, match=r"pass@5 needs 5 completions or more; there are 4"):
        pass_at(5, 4, 2)
