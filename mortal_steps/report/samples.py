"""Completions of a run's last step, for people to read: the best, the worst, the masked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mortal_steps.policy import journal
from mortal_steps.runs.run import Run
from mortal_steps.types import Prompt

Kind = Literal["best", "worst", "masked"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A completion and what it earned."""

    kind: Kind
    step: int
    """The train step that it was trained on in, counted from 1 as in metrics.jsonl."""
    problem_id: str
    prompt: Prompt
    text: str
    """The completion, without special tokens."""
    reward: float | None
    """Weighted sum; None where no function scored it."""
    rewards: Mapping[str, float | None]
    """Score of each reward function."""


def prompt_text(prompt: Prompt) -> str:
    """A prompt on its own, or the messages of a conversation below each other."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{message.get('role')}: {message.get('content')}" for message in prompt)


def last_samples(run: Run, most: int) -> list[Sample]:
    """The `most` best, worst and masked completions of the last step done, each of them once.

    Empty before the first step. Raises `CorruptFileError` where the step's records are damaged.
    """
    step = run.manifest.step
    entry = journal.find_entry(run.store, step - 1) if step else None
    if entry is None:
        return []
    batch = journal.read_batch(run.store, run.config, entry.request)
    everything = [(group.problem, rollout) for group in batch.groups for rollout in group.rollouts]

    def sample(kind: Kind, place: int) -> Sample:
        problem, rollout = everything[place]
        return Sample(
            kind=kind,
            step=step,
            problem_id=problem.id,
            prompt=problem.prompt,
            text=rollout.completion.text,
            reward=rollout.reward,
            rewards=rollout.rewards,
        )

    rewards = [rollout.reward for _, rollout in everything]
    ranked = sorted(
        ((reward, place) for place, reward in enumerate(rewards) if reward is not None),
        key=lambda scored: -scored[0],
    )
    best = [place for _, place in ranked[:most]]
    worst = [place for _, place in ranked[most:][-most:]]
    masked = [place for place, reward in enumerate(rewards) if reward is None][:most]
    return [
        *(sample("best", place) for place in best),
        *(sample("worst", place) for place in worst),
        *(sample("masked", place) for place in masked),
    ]
