"""Checks whether a run can learn from its rewards: they must differ within a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mortal_steps.report.units import number

FLAT_STEPS = 10
"""Steps in a row without any difference after which the user is warned."""
EQUAL = "frac_reward_zero_std"
"""TRL's name for the share of groups whose rewards are all equal."""


def is_flat(row: Mapping[str, Any]) -> bool:
    """Whether all rewards within each group of a step are equal, so that all its advantages are 0.
    `row` is its line of metrics.jsonl."""
    return row.get(EQUAL) == 1.0 and row["reward"] is not None


def is_unscored(row: Mapping[str, Any]) -> bool:
    """Whether no completion of a step has a reward. `row` is its line of metrics.jsonl."""
    return row["reward"] is None


def flat_warning(rows: Sequence[Mapping[str, Any]], steps: int = FLAT_STEPS) -> str | None:
    """What to say of the last `steps` steps if all of them are flat, or none was scored, and the
    one before them is not.

    So a run is warned once for each such time, however long it lasts. `rows` are lines of
    metrics.jsonl, the last one that of the step that has just been taken; no more than `steps` + 1
    of them are looked at.
    """
    last = rows[-steps:]
    for is_so, warning in ((is_flat, _all_equal), (is_unscored, _none_scored)):
        began_now = len(rows) <= steps or not is_so(rows[-steps - 1])
        if len(last) == steps and all(map(is_so, last)) and began_now:
            return warning(last)
    return None


def _none_scored(last: Sequence[Mapping[str, Any]]) -> str:
    return (
        f"nothing to learn from: no completion of steps {last[0]['step']} to {last[-1]['step']} "
        "has a reward. Every reward function returned None for it, or failed and was masked; "
        "`mortal samples` shows the completions"
    )


def _all_equal(last: Sequence[Mapping[str, Any]]) -> str:
    found = sorted({number(row["reward"]) for row in last})
    between = found[0] if len(found) == 1 else f"between {found[0]} and {found[-1]}"
    return (
        f"nothing to learn from: the rewards of every group of steps {last[0]['step']} to "
        f"{last[-1]['step']} are equal (reward {between}), so all advantages are 0. If every "
        "completion fails, take easier problems or a reward that tells bad from worse; if every "
        "one succeeds, take harder problems; else raise rollout.temperature or "
        "training.num_generations"
    )
