"""Completions of a run's step, for people to read: the best, the worst, the masked. Where
nothing is scored, just the first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, get_args

from mortal_steps.errors import DataError
from mortal_steps.policy import journal
from mortal_steps.policy.on_disk.rollout_files import pruned_before
from mortal_steps.report.dialogue import completion_text, prompt_of
from mortal_steps.runs.argument import run_argument
from mortal_steps.runs.run import Run
from mortal_steps.types import (
    Completion,
    Prompt,
    RewardedShard,
    RewardFailure,
    RewardRef,
    RolloutGroup,
)

Kind = Literal["best", "worst", "masked", "unscored"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A completion and its scores."""

    kind: Kind
    step: int
    """The train step that trained on it, counted from 1 as in metrics.jsonl."""
    problem_id: str
    prompt: Prompt
    text: str
    """The completion, without special tokens."""
    reward: float | None
    """Weighted sum; None where no function scored it."""
    rewards: Mapping[str, float | None]
    """Score of each reward function."""
    relative: float | None = None
    """Its reward less its group's mean: the advantage before TRL scales it; None without one."""
    why: Sequence[str] = ()
    """Of a masked one, what each function did that failed on it; empty where all abstained."""


def samples_of(
    run: Run, most: int, *, step: int | None = None, kinds: Sequence[Kind] = KINDS
) -> list[Sample]:
    """Return the `most` completions of each kind of a step, counted from 1; without one, of the
    last. Raises `DataError` where the run directory has no completions of that step, and
    `CorruptFileError` where they are damaged."""
    return _chosen(run, trained_on(run, step), most, kinds)


def trained_on(run: Run, step: int | None = None) -> journal.JournalEntry:
    """Return what a step, counted from 1, or the last one was given to train on. Raises `DataError`
    where the run no longer has that."""
    done, first = run.manifest.step, run.info.first_step + 1
    wanted = done if step is None else step
    known = f"{max(first, pruned_before(run.store) + 1)} to {done}"
    if not first <= wanted <= done:
        ends = f"has those of steps {known}" if done >= first else "has not done a step yet"
        raise DataError(f"there are no completions of step {wanted}: run {run.info.run_id} {ends}")
    entry = journal.find_entry(run.store, wanted - 1)
    if entry is None and wanted > pruned_before(run.store):
        raise DataError(
            f"the completions of step {wanted} are not in {run.store.root}; of a run on Modal, "
            f"`mortal fetch {run_argument(run.store.root)} --all` brings them"
        )
    if entry is None or wanted <= pruned_before(run.store):
        raise DataError(
            f"the completions of step {wanted} are not kept any more (checkpoints.keep_rollouts); "
            f"run {run.info.run_id} has those of steps {known}"
        )
    return entry


def _chosen(
    run: Run, entry: journal.JournalEntry, most: int, kinds: Sequence[Kind]
) -> list[Sample]:
    given, step = entry.request.batch, entry.request.step
    if not given.shards:
        return []
    batch = given.read(run.store, step, run.plan.trainer)
    everything = [(group, rollout) for group in batch.groups for rollout in group.rollouts]
    rewards = [rollout.reward for _, rollout in everything]
    failures = _failures(run, given.shards)
    answers: dict[tuple[str, str], int] = {}
    for index, (group, rollout) in enumerate(everything):  # the same answer is shown once
        answers.setdefault((group.problem.id, completion_text(rollout.completion)), index)
    ranked = sorted(
        ((reward, index) for index in answers.values() if (reward := rewards[index]) is not None),
        key=lambda scored: -scored[0],
    )
    best = [index for _, index in ranked[:most]] if "best" in kinds else []
    worst = [index for _, index in ranked[len(best) :][-most:]] if "worst" in kinds else []
    without = [index for index, reward in enumerate(rewards) if reward is None][:most]
    masked, unscored = ([], without) if run.config.training_rewards is None else (without, [])
    indices: dict[Kind, list[int]] = {
        **{"best": best, "worst": worst, "masked": masked, "unscored": unscored}
    }

    def sample(kind: Kind, index: int) -> Sample:
        group, rollout = everything[index]
        problem = group.problem
        return Sample(
            kind=kind,
            step=step + 1,
            problem_id=problem.id,
            prompt=prompt_of(problem, rollout.completion),
            text=completion_text(rollout.completion),
            reward=rollout.reward,
            rewards=rollout.rewards,
            relative=_relative(rollout.reward, group),
            why=why_masked(rollout.completion, failures.get(problem.id, []))
            if kind == "masked"
            else [],
        )

    return [sample(kind, index) for kind in KINDS if kind in kinds for index in indices[kind]]


def _relative(reward: float | None, group: RolloutGroup) -> float | None:
    if reward is None:
        return None
    return reward - fmean(each.reward for each in group.rollouts if each.reward is not None)


def why_masked(completion: Completion, failures: Sequence[RewardFailure]) -> list[str]:
    """Return why a completion is masked, where these are the failures on its problem: its own
    environment failed, or functions did. Empty for one that is not masked."""
    own = completion.episode.failure if completion.episode is not None else None
    if own is not None:
        return [f"environment: {own}"]
    return [failure_in_words(each) for each in failures if each.kind != "environment"]


def _failures(run: Run, rewards: Sequence[RewardRef]) -> dict[str, list[RewardFailure]]:
    failures: dict[str, list[RewardFailure]] = {}
    for shard in rewards:
        if shard.masked:
            for failure in run.store.read_record(shard.file, RewardedShard).failures:
                failures.setdefault(failure.problem_id, []).append(failure)
    return failures


def failure_in_words(failure: RewardFailure) -> str:
    """Say what a function did, such as `correct raised KeyError: 'x' (exception, 3 calls)`."""
    calls = f"{failure.attempts} calls" if failure.attempts > 1 else "1 call"
    return f"{failure.function} {failure.message} ({failure.kind}, {calls})"
