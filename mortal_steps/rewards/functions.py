"""Reward functions that come with MORTAL; name them as `mortal.rewards.functions:<name>`."""

import ast
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mortal_steps.errors import RewardError
from mortal_steps.rewards.base import text_of

RUNS_THE_ANSWER = frozenset(
    {
        "binary_matrix",
        "countdown",
        "intermediate_integration",
        "n_queens",
        "polynomial_multiplication",
        "puzzle24",
        "simple_integration",
        "spiral_matrix",
        "string_insertion",
    }
)
"""reasoning_gym tasks whose verifier evaluates the answer as Python (`eval`, sympy's parser)."""

_gym_rows = False


def trust_gym_rows(trust: bool) -> None:
    """Say whether rows come from reasoning_gym itself: verifiers evaluate parts of an entry as
    Python, and tasks read files that options name, so others' rows could do anything."""
    global _gym_rows
    _gym_rows = trust


def reasoning_gym_score(
    completions: Sequence[Any],
    source_dataset: Sequence[str],
    task_options: Sequence[Mapping[str, Any]],
    entry: Sequence[str],
    log_metric: Callable[[str, float], None],
    **kwargs: Any,
) -> list[float | None]:
    """Return what the verifier of the problem's own reasoning_gym task gives, 0 to 1.

    It judges what stands in the last `<answer>` tags, or the whole completion without such tags.
    Abstains where the verifier itself fails on an answer; the metric `reasoning_gym_unjudged` is
    the share of those. Raises `RewardError` for a task whose verifier would run the answer as code,
    and for rows that MORTAL has not got from reasoning_gym itself.
    """
    if not _gym_rows:
        raise RewardError(
            "reasoning_gym's verifiers run parts of the columns `entry` and `task_options` as "
            "Python code, so these columns are taken from reasoning_gym itself alone, not from a "
            "file or the hub; use data.source = 'reasoning_gym:TASK' (and such a data.eval_source, "
            "if any), or compare with the column `answer` (exact_match)"
        )
    scores = [
        _score(_verifier(task, json.dumps(options)), text_of(completion), ast.literal_eval(literal))
        for completion, task, options, literal in zip(
            completions, source_dataset, task_options, entry, strict=True
        )
    ]
    if None in scores:
        log_metric("reasoning_gym_unjudged", scores.count(None) / len(scores))
    return scores


def reasoning_gym_solved(**kwargs: Any) -> list[float | None]:
    """1 where the problem's reasoning_gym verifier gives full marks, else 0; takes and refuses what
    `reasoning_gym_score` does."""
    scores = reasoning_gym_score(**kwargs)
    return [None if score is None else float(score == 1.0) for score in scores]


def _score(verifier: Callable[..., float], text: str, entry: Any) -> float | None:
    from reasoning_gym.utils import extract_answer

    tagged = extract_answer(text)
    try:
        return float(verifier(text.strip() if tagged is None else tagged, entry))
    except Exception:  # noqa: BLE001 - some verifiers stumble over nonsense, each in its own way
        return None


@functools.cache
def _verifier(task: str, options: str) -> Callable[..., float]:
    """Made once per task and parameters: some judge by those, and making one reads word lists."""
    try:
        import reasoning_gym
    except ModuleNotFoundError:
        raise RewardError(
            "the interpreter of the reward functions has no reasoning_gym; `pip install "
            "'reasoning-gym==0.1.25'` there, or leave compute.local.reward.python out"
        ) from None
    if task in RUNS_THE_ANSWER:
        raise RewardError(
            f"reasoning_gym's verifier of {task} runs the model's answer as Python code, which "
            "must not happen in this process; compare with the column `answer` (exact_match), or "
            "write a verifier that does not"
        )
    dataset = reasoning_gym.create_dataset(task, **json.loads(options))
    verifier: Callable[..., float] = dataset.score_answer
    return verifier
