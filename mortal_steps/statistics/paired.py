"""How much better one model is than another on the same problems.

Two models that answer the same problems are compared problem by problem: what makes a problem hard
for both of them then does not count as chance, and half of the problems show the same gain.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mortal_steps.statistics.intervals import are_alike, bootstrap, is_binary, wilson


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class Paired:
    """The scores of one model minus those of another, over the problems that both have."""

    difference: float
    """Mean of the differences; above 0 the first model is better."""
    low: float | None
    """Lower end of the 95 % interval of that mean; None where the differences say nothing of how
    they scatter."""
    high: float | None
    p: float | None
    """Of the exact test of McNemar (1947), two-sided; None unless each score is 0 or 1."""
    num_problems: int


def compare(
    scores: Sequence[float | None], others: Sequence[float | None], seed: Sequence[int]
) -> Paired | None:
    """Compare two models by their scores of the same problems, in the same order; None for a
    problem that could not be scored. `seed` fixes what the bootstrap draws. Returns None if no
    problem has both scores."""
    pairs = [
        (score, other)
        for score, other in zip(scores, others, strict=True)
        if score is not None and other is not None
    ]
    if not pairs:
        return None
    differences = [score - other for score, other in pairs]
    of_shares = is_binary([score for pair in pairs for score in pair])
    low, high = _interval(differences, seed, of_shares=of_shares)
    num_better = sum(difference > 0 for difference in differences)
    num_worse = sum(difference < 0 for difference in differences)
    return Paired(
        difference=math.fsum(differences) / len(pairs),
        low=low,
        high=high,
        p=mcnemar(num_better, num_worse) if of_shares else None,
        num_problems=len(pairs),
    )


def _interval(
    differences: Sequence[float], seed: Sequence[int], *, of_shares: bool
) -> tuple[float | None, float | None]:
    first = differences[0]
    if not are_alike(differences):
        return bootstrap(differences, seed)
    if not of_shares:
        return None, None
    # No problem differs from the others: so many of all problems may, at most, in either direction.
    _, share = wilson(0, len(differences))
    return max(-1.0, first - share), min(1.0, first + share)


def mcnemar(num_better: int, num_worse: int) -> float:
    """Return the exact two-sided p of so many problems that only the one model, or only the other,
    has right: how likely a difference as large as that is between equal models."""
    total, fewer = num_better + num_worse, min(num_better, num_worse)
    tail = sum(math.comb(total, number) for number in range(fewer + 1))
    return min(1.0, 2 * tail / (1 << total))
