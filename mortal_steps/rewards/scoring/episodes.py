"""What a shard's environments have said of its episodes: scores, failures, how they went."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, get_args, get_type_hints

from mortal_steps.rewards.calling.calls import CallScores
from mortal_steps.rewards.scoring.jobs import Part
from mortal_steps.types import Episode, GeneratedShard, RewardFailure

STOPS: Sequence[str] = get_args(get_type_hints(Episode)["stop"])


def scored_by_environments(shard: GeneratedShard, names: Sequence[str]) -> dict[str, Part]:
    """Return scores computed beside environments, by name; all if no episode finished."""
    episodes = [made.episode for group in shard.groups for made in group.completions]
    if not any(episodes):
        return {}
    finished = [each for each in episodes if each is not None and each.failure is None]
    computed = {name for each in finished for name in each.scores} if finished else set(names)
    parts = {}
    for name in (name for name in names if name in computed):
        scores = [None if each is None else each.scores.get(name) for each in episodes]
        parts[name] = _part(shard, CallScores(scores=scores, metrics={}, extra={}))
    if parts:  # what was logged is not known by function
        first = next(iter(parts))
        parts[first] = _part(shard, replace(parts[first].answer, **_logged(episodes)))
    return parts


def _logged(episodes: Sequence[Episode | None]) -> dict[str, Any]:
    """Return what rewards reported beside the environments, as metrics and extra columns."""
    metrics: dict[str, list[float]] = {}
    for each in episodes:
        for name, value in (each.metrics if each else {}).items():
            metrics.setdefault(name, []).append(value)
    columns = sorted({name for each in episodes if each for name in each.extra})
    extra = {
        name: [each.extra.get(name) if each else None for each in episodes] for name in columns
    }
    return {"metrics": metrics, "extra": extra}


def _part(shard: GeneratedShard, scores: CallScores) -> Part:
    return Part(groups=shard.groups, outcome=scores)


def no_scores(shard: GeneratedShard) -> Part:
    size = sum(len(group.completions) for group in shard.groups)
    return _part(shard, CallScores(scores=[None] * size, metrics={}, extra={}))


def failed_episodes(shard: GeneratedShard) -> Iterator[RewardFailure]:
    """Yield a failure for each problem with episodes whose environments failed."""
    for group in shard.groups:
        episodes = [made.episode for made in group.completions if made.episode is not None]
        reasons = [each.failure for each in episodes if each.failure is not None]
        if reasons:
            yield RewardFailure(
                function="environment",
                problem_id=group.problem.id,
                num_completions=len(reasons),
                kind="environment",
                message=reasons[0],
                attempts=1,
            )


def episode_metrics(shard: GeneratedShard) -> dict[str, float]:
    """Return means over the completions of how episodes went: turns, environments' tokens, the
    share of each ending and of changed answers; nothing without environments."""
    made = [each for group in shard.groups for each in group.completions if each.episode]
    if not made:
        return {}
    stops: Counter[str] = Counter(each.episode.stop for each in made if each.episode is not None)
    differing = sum(each.differing_answer is not None for each in made)
    added = sum(len(each.token_ids) - each.num_sampled for each in made)
    return {
        "episodes/turns": sum(max(1, len(each.turns)) for each in made) / len(made),
        "episodes/environment_tokens": added / len(made),
        **{f"episodes/stop_{stop}": stops[stop] / len(made) for stop in STOPS},
        **({"episodes/differing_answers": differing / len(made)} if differing else {}),
    }
