"""The result of an evaluation: mean scores over the held-out problems."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeVar

from mortal_steps.config import RewardsConfig
from mortal_steps.plan.held_out import HeldOutSets, Part, dealt
from mortal_steps.report.units import number
from mortal_steps.scores import mean_of, reward_weights, total_reward, weighted_sum
from mortal_steps.statistics.intervals import Interval, is_binary
from mortal_steps.statistics.passing import pass_at
from mortal_steps.types import HarnessAnswer, RewardedShard

Column = TypeVar("Column")
Group = Sequence[Mapping[str, float | None]]
"""The scores of a problem's completions by function."""

OWN_COLUMNS = ("step", "reward")
"""Columns of evaluations.jsonl that are no logged metrics."""
EPISODES = "episodes/"
"""What the names of metrics begin with that say how episodes went."""
DIFFERING = "episodes/differing_answers"
"""The share of episodes with an answer that changed; only where there are any."""


OF_ROWS = ("rewards/accuracies", "rewards/margins", "accuracy", "mean_token_accuracy")
"""What TRL's dataset trainers measure of held-out rows beside the loss: the first of these that
there is says most."""


def scores_text(
    scores: Mapping[str, float], intervals: Mapping[str, Interval] = MappingProxyType({})
) -> str:
    """Return the scores in a line, with the intervals that there are; without how episodes went,
    which the report shows; of rows that are judged by the loss, this and the measure that says
    most."""
    shown = {name: score for name, score in scores.items() if not name.startswith(EPISODES)}
    if "loss" in scores and "reward" not in scores:
        most = next((name for name in OF_ROWS if name in scores), "loss")
        shown = {name: scores[name] for name in dict.fromkeys(("loss", most))}
    return ", ".join(
        f"{name} {score_text(score, intervals.get(name))}" for name, score in shown.items()
    )


def score_text(score: float | None, interval: Interval | None = None) -> str:
    """Return a score, followed by its interval if it has one: `0.940 [0.898, 0.965]`."""
    return number(score) + (f" [{interval.low:.3f}, {interval.high:.3f}]" if interval else "")


def judged_text(scores: Mapping[str, float]) -> str:
    """Return the scores of an evaluation in a line, which says so if there is no reward; of each
    set with a name its reward alone."""
    missing = "" if "reward" in scores or "loss" in scores else "no reward"
    shown = {
        name: score
        for name, score in scores.items()
        if not name.startswith("eval_") or name.endswith("_reward")
    }
    return ", ".join(filter(None, [missing, scores_text(shown)]))


def evaluation_scores(
    held_out: HeldOutSets,
    step: int,
    shards: Sequence[RewardedShard],
    answers: Mapping[str, HarnessAnswer],
) -> dict[str, float]:
    """Return the metrics of an evaluation after `step` steps, from its shards in order and the
    answers of its harnesses: `mean_scores`; those of a set with settings of its own begin with
    `eval_<set>_`. The reward is that of the set that decides, if one is named."""
    means: dict[str, float] = {}
    for part, its in dealt(held_out.parts(step), shards):
        found = mean_scores(part.rewards, its, part.sets)
        means |= of_set(part, found) if part.name else found
    for name, answer in answers.items():
        means |= _means(harness_columns(name, answer))
    return deciding(held_out.evaluation.decides, means)


def of_set(part: Part, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a part as those of its set, as TRL and transformers name them."""
    names = {
        f"rewards/{name}" if name in OWN_COLUMNS else name: f"rewards/{name}/mean"
        for name in reward_weights(part.rewards)
    }
    return {f"eval_{part.name}_{names.get(name, name)}": each for name, each in columns.items()}


def harness_columns(name: str, answer: HarnessAnswer) -> list[tuple[str, list[float | None]]]:
    """Return what a harness answered by column: the score of each problem, or its one number."""
    if answer.number is not None:
        return [(f"eval_{name}_reward", [answer.number])]
    metrics = dict.fromkeys(metric for scores in answer.scores.values() for metric in scores)
    columns = {
        metric: [scores.get(metric) for scores in answer.scores.values()] for metric in metrics
    }
    named = [
        (f"eval_{name}_rewards/{metric}/mean", each)
        for metric, each in columns.items()
        if metric != "reward"  # a score without a name of its own
    ]
    return [(f"eval_{name}_reward", columns[answer.reward]), *named]


def deciding(name: str, columns: Mapping[str, Column]) -> dict[str, Column]:
    """Return the columns with the reward of the set that decides as the `reward`."""
    if not name:
        return dict(columns)
    others = {key: each for key, each in columns.items() if key != "reward"}
    decides = columns.get(f"eval_{name}_reward")
    return others if decides is None else {**others, "reward": decides}


def mean_scores(
    rewards: RewardsConfig, shards: Sequence[RewardedShard], sets: Mapping[str, int]
) -> dict[str, float]:
    """Return the mean of each function that scores evaluations over the problems it scored, and of
    their weighted sum.

    Also how many completions are masked, by the function that failed on them, and the metrics that
    functions logged. A function that is called as one of our own columns has its mean under
    `rewards/<function>`. The scores of each of the `sets` (`RunInfo.eval_sets`) are added, under
    TRL's names with transformers' prefix of a set.
    """
    weights = reward_weights(rewards)
    groups = [group for shard in shards for group in shard.rewards]
    completions = [completion for group in groups for completion in group]
    named = {name: f"rewards/{name}" if name in OWN_COLUMNS else name for name in weights}
    means = _means((named[name], [each.get(name) for each in completions]) for name in weights)
    for failure in (failure for shard in shards for failure in shard.failures):
        key = f"rewards/{failure.function}/masked"
        means[key] = means.get(key, 0.0) + failure.num_completions
    totals = [total_reward(shard, weights) for shard in shards]
    num_scored = sum(count for _, count in totals)
    if num_scored:
        means["reward"] = sum(total for total, _ in totals) / num_scored
    logged = mean_metrics(
        (shard.metrics, sum(len(group) for group in shard.rewards)) for shard in shards
    )
    means |= as_columns({*means, *OWN_COLUMNS}, logged)
    return means | _means(passed(groups, weights).items()) | _by_set(groups, sets, weights)


def passed(groups: Sequence[Group], weights: Mapping[str, float]) -> dict[str, list[float | None]]:
    """Return `pass@k/reward` and `pass@k/<function>` of each problem, from groups of k completions;
    None where not all k are scored. Without several completions there are none, nor of scores that
    are not all 0 or 1."""
    size = max(map(len, groups), default=0)
    if size < 2:
        return {}
    columns = {name: [[each.get(name) for each in group] for group in groups] for name in weights}
    columns["reward"] = [[weighted_sum(each, weights) for each in group] for group in groups]
    return {
        f"pass@{size}/{name}": [_pass(scores, size) for scores in column]
        for name, column in columns.items()
        if is_binary([score for scores in column for score in scores if score is not None])
    }


def _pass(scores: Sequence[float | None], size: int) -> float | None:
    known = [score for score in scores if score is not None]
    return pass_at(size, size, int(sum(known))) if len(known) == size else None


def _means(columns: Iterable[tuple[str, Sequence[float | None]]]) -> dict[str, float]:
    """Return the mean of each column that has a score."""
    found = ((name, mean_of(column)) for name, column in columns)
    return {name: mean for name, mean in found if mean is not None}


def _by_set(
    scored: Sequence[Group],
    sets: Mapping[str, int],
    weights: Mapping[str, float],
) -> dict[str, float]:
    """Return `eval_<set>_reward` and `eval_<set>_rewards/<function>/mean` where scored."""
    means: dict[str, float] = {}
    rows = iter(scored)
    for name, count in sets.items():
        of_set = [completion for group in islice(rows, count) for completion in group]
        columns = {"reward": [weighted_sum(row, weights) for row in of_set]}
        for function in weights:
            columns[f"rewards/{function}/mean"] = [row.get(function) for row in of_set]
        means |= _means((f"eval_{name}_{key}", column) for key, column in columns.items())
    return means


def mean_metrics(shards: Iterable[tuple[Mapping[str, float], int]]) -> dict[str, float]:
    """Return means of logged metrics over shards of so many completions each; how episodes went is
    0 in a shard that does not say it.

    Weighted by those: the mean over the completions of each call, which is what functions log, is
    then the mean over all completions, however they are dealt out.
    """
    shards = list(shards)
    means = {}
    for name in sorted({name for metrics, _ in shards for name in metrics}):
        of_all = name.startswith(EPISODES)
        found = [(m.get(name, 0.0), count) for m, count in shards if of_all or name in m]
        total = math.fsum(value * count for value, count in found)
        means[name] = total / sum(count for _, count in found)
    return means


def as_columns(taken: Collection[str], logged: Mapping[str, float]) -> dict[str, float]:
    """Return logged metrics as columns; a taken name becomes `log_metric/<name>`."""
    return {f"log_metric/{name}" if name in taken else name: logged[name] for name in logged}
