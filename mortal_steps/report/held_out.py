"""What each held-out problem scored, and what follows: the intervals of an evaluation's means, and
how much better one evaluation is than another. All of it is read from the committed shards."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

from pydantic import ValidationError

from mortal_steps.config import EvaluationConfig, RewardsConfig
from mortal_steps.errors import CorruptFileError
from mortal_steps.plan.held_out import HeldOutSets, dealt
from mortal_steps.report.evaluations import (
    OWN_COLUMNS,
    deciding,
    harness_columns,
    of_set,
    passed,
)
from mortal_steps.report.units import counted
from mortal_steps.runs.run import Run
from mortal_steps.scores import mean_of, reward_weights, weighted_sum
from mortal_steps.statistics.intervals import Interval, interval_of
from mortal_steps.statistics.paired import Paired, compare
from mortal_steps.store.records import RecordStore, harness_file, shard_file
from mortal_steps.types import HarnessAnswer, RewardedShard

logger = logging.getLogger(__name__)

REWARD = "reward"
"""The column that decides: the weighted sum of the functions."""
CLEAR = 0.05
"""McNemar's p below which a difference is clear."""


class Scores(dict[str, Sequence[float | None]]):
    """By column of evaluations.jsonl: the score of each problem, the mean over its completions;
    None where it has none."""

    def __init__(
        self, columns: Mapping[str, Sequence[float | None]], *, ids: Sequence[str] = ()
    ) -> None:
        """`ids` are those of the problems of the harness that decides, if one does: it may have
        asked others than before."""
        super().__init__(columns)
        self.ids = tuple(ids)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gain:
    """The reward of a run's last evaluation beside that of an earlier one, problem by problem."""

    since: int
    """Step of the earlier one."""
    paired: Paired
    decides: str = ""
    """The set whose reward it is, where one was named."""


class HeldOutScores:
    """The scores of a run's evaluations. What cannot be read is warned of, and is none: it is shown
    beside what the run's logs say."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._read: dict[int, Scores | None] = {}

    def of(self, step: int) -> Scores | None:
        """Return the scores after `step` steps; None where no completions are scored, as with rows
        that are judged by their loss, or where the shards are not here."""
        if step not in self._read:
            self._read[step] = self._of(step)
        return self._read[step]

    def _of(self, step: int) -> Scores | None:
        settings, info = self._settings, self._run.info
        if settings is None:
            return None
        try:
            held_out = HeldOutSets(
                rewards=RewardsConfig.model_validate(settings["rewards"]),
                evaluation=EvaluationConfig.model_validate(settings["evaluation"]),
                sizes=info.eval_sets,
                num_problems=info.num_eval_problems,
                num_steps=info.num_steps,
            )
            return scores_in(self._run.store, f"evaluations/{step:06d}", held_out, step)
        except (CorruptFileError, ValidationError) as error:
            logger.warning("the evaluation after step %d has no intervals: %s", step, error)
            return None

    def intervals(self, step: int) -> dict[str, Interval]:
        """Return the interval of each mean score of the evaluation after `step` steps."""
        return intervals_of(self.of(step) or {}, self.seed(step))

    def gain(self, steps: Sequence[int]) -> Gain | None:
        """Compare the last of the evaluations after so many `steps` with the first whose shards are
        here: a fork has none of its parent's. Returns None without such a one."""
        now = self.of(steps[-1]) if steps else None
        then = next(((step, found) for step in steps[:-1] if (found := self.of(step))), None)
        if now is None or then is None:
            return None
        paired = paired_rewards(now, then[1], self.seed(steps[-1]))
        decides = (self._settings or {}).get("evaluation", {}).get("decides", "")
        return None if paired is None else Gain(since=then[0], paired=paired, decides=decides)

    def seed(self, step: int) -> tuple[int, int]:
        """Return the seed of what is drawn for an evaluation's intervals."""
        return (self._settings or {}).get("seed", 0), step

    @cached_property
    def _settings(self) -> Mapping[str, Any] | None:
        try:
            return self._run.settings()
        except CorruptFileError:  # the run's summary warns of it
            return None


def committed_shards(store: RecordStore, folder: str) -> list[RewardedShard] | None:
    """Return the scored shards in a folder, in order; None if there are none. Raises
    `CorruptFileError`."""
    found: list[RewardedShard] = []
    for number in count():
        record = store.find_record(shard_file(folder, "rewards", number), RewardedShard)
        if record is None:
            return found or None
        found.append(record[1])
    raise AssertionError("folders end")


def scores_in(store: RecordStore, folder: str, held_out: HeldOutSets, step: int) -> Scores | None:
    """Return what each problem scored in the evaluation in a folder, under the names of
    `evaluation_scores`; None unless all of it is there. Raises `CorruptFileError`."""
    shards, answers = committed_shards(store, folder), answers_in(store, folder, held_out, step)
    there = sum(len(shard.rewards) for shard in shards or ())
    if answers is None or there != held_out.size(step) or not (there or answers):
        return None
    columns: dict[str, Sequence[float | None]] = {}
    for part, its in dealt(held_out.parts(step), shards or ()):
        found = problem_scores(part.rewards, its, part.sets)
        columns |= of_set(part, found) if part.name else found
    ids: tuple[str, ...] = ()
    for name, answer in answers.items():
        if answer.number is None:  # of one number, nobody knows how sure it is
            columns |= harness_columns(name, answer)
        if name == held_out.evaluation.decides:
            ids = tuple(answer.scores)
    return Scores(deciding(held_out.evaluation.decides, columns), ids=ids)


def answers_in(
    store: RecordStore, folder: str, held_out: HeldOutSets, step: int
) -> dict[str, HarnessAnswer] | None:
    """Return the answers of an evaluation's harnesses; None if one is not there. Raises
    `CorruptFileError`."""
    found = {
        name: store.find_record(harness_file(folder, name), HarnessAnswer)
        for name in held_out.harnesses(step)
    }
    there = {name: record[1] for name, record in found.items() if record is not None}
    return there if len(there) == len(found) else None


def paired_rewards(now: Scores, then: Scores, seed: Sequence[int]) -> Paired | None:
    """Compare the rewards of two evaluations problem by problem; None where they are not those of
    the same problems, or are not known so."""
    if REWARD not in now or REWARD not in then or now.ids != then.ids:
        return None
    if len(now[REWARD]) != len(then[REWARD]):
        return None
    return compare(now[REWARD], then[REWARD], seed)


def problem_scores(
    rewards: RewardsConfig, shards: Sequence[RewardedShard], sets: Mapping[str, int]
) -> dict[str, Sequence[float | None]]:
    """Return what each problem scored, under the names of `mean_scores`: by each function, by their
    weighted sum, and both again for each of the `sets`, in which it has None outside of the set."""
    weights = reward_weights(rewards)
    groups = [group for shard in shards for group in shard.rewards]
    functions = {
        name: [mean_of(each.get(name) for each in group) for group in groups] for name in weights
    }
    total = [mean_of(weighted_sum(each, weights) for each in group) for group in groups]
    named = {f"rewards/{n}" if n in OWN_COLUMNS else n: each for n, each in functions.items()}
    columns: dict[str, Sequence[float | None]] = {**named, REWARD: total, **passed(groups, weights)}
    for name, (start, stop) in _bounds(sets):
        columns[f"eval_{name}_reward"] = total[start:stop]
        for function, scores in functions.items():
            columns[f"eval_{name}_rewards/{function}/mean"] = scores[start:stop]
    return columns


def _bounds(sets: Mapping[str, int]) -> Iterator[tuple[str, tuple[int, int]]]:
    start = 0
    for name, size in sets.items():
        yield name, (start, start + size)
        start += size


def intervals_of(
    scores: Mapping[str, Sequence[float | None]], seed: Sequence[int]
) -> dict[str, Interval]:
    """Return the interval of each column's mean, where it has one."""
    found = {
        name: interval_of([score for score in column if score is not None], seed)
        for name, column in scores.items()
    }
    return {name: interval for name, interval in found.items() if interval is not None}


def gain_text(gain: Gain) -> str:
    whose = f"reward on {gain.decides}" if gain.decides else "reward"
    return f"{whose} since step {gain.since}: {paired_text(gain.paired)}"


def paired_text(paired: Paired) -> str:
    """Say what a comparison means, such as `better by 0.080 [0.030, 0.130] on the same 200
    problems, McNemar's p 0.002`."""
    problems = f"on the same {counted(paired.num_problems, 'problem')}"
    by, low, high = paired.difference, paired.low, paired.high
    if low is None or high is None:
        return f"{by:+.3f} on each of {problems.removeprefix('on ')}, too alike for an interval"
    is_clear = paired.p is None or paired.p < CLEAR
    if is_clear and low > 0:
        said = f"better by {by:.3f} [{low:.3f}, {high:.3f}]"
    elif is_clear and high < 0:
        said = f"worse by {-by:.3f} [{-high:.3f}, {-low:.3f}]"
    else:
        said = f"no clear difference: {by:+.3f} [{low:+.3f}, {high:+.3f}]"
    return f"{said} {problems}{_p_text(paired.p)}"


def _p_text(p: float | None) -> str:
    if p is None:
        return ""
    return f", McNemar's p {p:.3f}" if p >= 0.001 else ", McNemar's p < 0.001"
