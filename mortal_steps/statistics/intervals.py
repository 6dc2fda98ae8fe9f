"""95 % intervals of a mean score over problems.

Scores of 0 and 1 have Wilson's interval (Wilson 1927), which holds what it promises also near 0 and
1. Other scores, among them the share of a problem's completions that are right, have the percentile
bootstrap over problems (Efron 1979).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Z = 1.959963984540054
"""The standard normal distribution has 95 % of its mass between -Z and Z."""
TAILS = (0.025, 0.975)
DRAWS = 2000
ROUNDED = 1e-9
"""Of a score, the part by which equal ones may differ: sums of scores are rounded."""
AT_ONCE = 1 << 22
"""Scores drawn at a time, which bounds memory."""

Method = Literal["wilson", "bootstrap"]


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class Interval:
    """An interval that holds the mean over all problems of the kind in 95 of 100 evaluations."""

    low: float
    high: float
    method: Method


def interval_of(scores: Sequence[float], seed: Sequence[int]) -> Interval | None:
    """Return the interval of the mean of `scores`, one for each problem: the mean over its
    completions. `seed` fixes what the bootstrap draws. None where scores say nothing of how they
    scatter: there are none, or all are equal and neither 0 nor 1."""
    if not scores:
        return None
    if is_binary(scores):
        low, high = wilson(round(sum(scores)), len(scores))
        return Interval(low=low, high=high, method="wilson")
    if are_alike(scores):
        return None
    low, high = bootstrap(scores, seed)
    return Interval(low=low, high=high, method="bootstrap")


def is_binary(scores: Sequence[float]) -> bool:
    """Return whether each score is 0 or 1."""
    return all(score in (0, 1) for score in scores)


def are_alike(scores: Sequence[float]) -> bool:
    """Return whether scores are equal, but for what they are rounded by."""
    return max(scores) - min(scores) <= ROUNDED * max(1.0, *map(abs, scores))


def wilson(num_right: int, num_problems: int) -> tuple[float, float]:
    """Return the interval of a share, `num_right` of `num_problems`."""
    share, squared = num_right / num_problems, Z * Z / num_problems
    middle = share + squared / 2
    half = Z * math.sqrt(share * (1 - share) / num_problems + squared / num_problems / 4)
    low, high = (middle - half) / (1 + squared), (middle + half) / (1 + squared)
    # Exactly 0 and 1 at either end, where rounding leaves a little more or less.
    return (low if num_right else 0.0), (high if num_right < num_problems else 1.0)


def bootstrap(scores: Sequence[float], seed: Sequence[int]) -> tuple[float, float]:
    """Return the percentile bootstrap of the mean: of `DRAWS` draws of as many problems, with
    replacement. The same seed draws the same problems."""
    import numpy as np  # commands that only print an interval start without it

    values, generator = np.asarray(scores, dtype=np.float64), np.random.default_rng(seed)
    size, at_once = len(values), max(1, AT_ONCE // len(values))
    means = np.concatenate(
        [
            values[generator.integers(0, size, (min(at_once, DRAWS - done), size))].mean(axis=1)
            for done in range(0, DRAWS, at_once)
        ]
    )
    low, high = np.quantile(means, TAILS)
    return float(low), float(high)
