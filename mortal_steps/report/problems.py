"""How often the policy solved each problem of a run, over its steps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from mortal_steps.errors import DataError
from mortal_steps.policy import journal
from mortal_steps.policy.on_disk.rollout_files import pruned_before
from mortal_steps.runs.run import Run
from mortal_steps.scores import differ, reward_weights, weighted_sum
from mortal_steps.types import GeneratedShard, Prompt, RewardedShard

Verdict = Literal["solved", "unsolved", "worse", "between", "never"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
FORGOTTEN = 0.5
"""The part of the range of rewards by which a problem is worse than it was."""


@dataclass(kw_only=True, slots=True)
class ProblemHistory:
    """What the steps of a run have shown of a problem."""

    problem_id: str
    prompt: Prompt
    steps: list[int] = field(default_factory=list)
    """Steps that sampled it, counted from 1; a step twice, if it did twice."""
    rewards: list[float] = field(default_factory=list)
    """Mean reward of the group in each of these."""
    rates: list[float] = field(default_factory=list)
    """The same as a part of the range of all rewards of the run: 1 is the best one."""
    verdict: Verdict = "never"
    """`solved`, `unsolved`: always the best reward, always the lowest; `worse`: lately far below
    what it was; `never`: no completion of it has a reward."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunProblems:
    """The problems of a run whose completions are still there."""

    run_id: str
    num_problems: int
    """Of the training problems."""
    first_step: int
    """The first step whose completions are kept."""
    last_step: int
    low: float
    high: float
    """The lowest and the highest reward."""
    problems: Sequence[ProblemHistory]

    def count(self, verdict: Verdict) -> int:
        return sum(problem.verdict == verdict for problem in self.problems)

    @property
    def num_sampled(self) -> int:
        return len(self.problems)


def problems_of(run: Run) -> RunProblems:
    """Read the completions' rewards of every step that has them. Raises `DataError` where there are
    none, and `CorruptFileError` where they are damaged."""
    found: dict[str, ProblemHistory] = {}
    low, high = float("inf"), float("-inf")
    first = max(run.info.first_step, pruned_before(run.store))
    for step in range(first, run.manifest.step):
        for problem_id, prompt, rewards in _groups(run, step):
            known = found.setdefault(
                problem_id, ProblemHistory(problem_id=problem_id, prompt=prompt)
            )
            if rewards:
                known.steps.append(step + 1)
                known.rewards.append(sum(rewards) / len(rewards))
                low, high = min(low, *rewards), max(high, *rewards)
    if not found:
        raise DataError(
            f"run {run.info.run_id} has no completions: it has sampled none yet, or does not keep "
            "them (checkpoints.keep_rollouts), or learns from rows"
        )
    if low > high:
        low = high = 0.0
    for problem in found.values():
        problem.rates = [_rate(reward, low, high) for reward in problem.rewards]
        problem.verdict = _verdict(problem.rates)
    return RunProblems(
        run_id=run.info.run_id,
        num_problems=run.info.num_problems,
        first_step=first + 1,
        last_step=run.manifest.step,
        low=low,
        high=high,
        problems=list(found.values()),
    )


def _groups(run: Run, step: int) -> Iterator[tuple[str, Prompt, list[float]]]:
    """Yield a step's problems, each with the rewards of its completions that have one."""
    entry = journal.find_entry(run.store, step)
    weights = reward_weights(run.config.rewards)
    for shard in entry.request.batch.shards if entry else ():
        generated = run.store.read_record(shard.generation.file, GeneratedShard)
        scored = run.store.read_record(shard.file, RewardedShard)
        for group, scores in zip(generated.groups, scored.rewards, strict=True):
            rewards = [weighted_sum(each, weights) for each in scores]
            known = [reward for reward in rewards if reward is not None]
            yield group.problem.id, group.problem.prompt, known


def _rate(reward: float, low: float, high: float) -> float:
    """Return a mean reward as a part of the range; exactly 0 and 1 at its ends, which a mean of
    equal rewards misses by what it is rounded."""
    if not differ(low, high):
        return float(high > 0)
    if not differ(low, reward):
        return 0.0
    return (reward - low) / (high - low) if differ(reward, high) else 1.0


def _verdict(rates: Sequence[float]) -> Verdict:
    if not rates:
        return "never"
    if min(rates) == 1:
        return "solved"
    if max(rates) == 0:
        return "unsolved"
    return "worse" if max(rates) - rates[-1] > FORGOTTEN else "between"
