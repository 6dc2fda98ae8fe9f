"""What a selection sees and says: a generator, which asks for rounds of problems and is sent their
rewards.

Run again with the same `Draw` and the same rewards, a selection asks for the same. So a step that
was killed between two of its rounds needs no other record than the rewards of the first.
"""

import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mortal_steps.scores import differ


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """Completions of one problem in a round. All asks of a round have the same `count`."""

    row: int
    """Row of the training problems."""
    count: int
    """Completions."""
    goes_on: int | None = None
    """The ask of this step, counted over its rounds, whose group this one continues."""


@dataclass(frozen=True, slots=True)
class Scores:
    """The rewards of an ask's completions; None where a completion has none."""

    rewards: tuple[float | None, ...]

    @property
    def known(self) -> list[float]:
        return [reward for reward in self.rewards if reward is not None]

    @property
    def differ(self) -> bool:
        """Whether anything can be learned from the group: two of its rewards differ."""
        known = self.known
        return len(known) >= 2 and differ(min(known), max(known))


@dataclass(kw_only=True, slots=True)
class Draw:
    """All that a selection may look at when a step begins. What it shows of earlier steps ends with
    step `step - 1 - rollout.staleness`, whatever else is known by then."""

    step: int
    batch_size: int
    """Groups that a step trains on."""
    num_generations: int
    """Completions of a group."""
    multiple: int
    """A step trains on a multiple of so many groups, at most `batch_size`."""
    position: int
    """Rows that the steps before have taken from the endless stream of the dataset's epochs."""
    row_at: Callable[[int], int]
    """The row at a position of that stream."""
    value_of: Callable[[int], str]
    """The row's value of `selection.column`; an empty text without one."""
    seen: Mapping[int, Any]
    """What earlier steps have shown of a problem, by row: a `Seen` of
    mortal_steps/selection/history.py."""
    by_value: Mapping[str, tuple[float, float]]
    """Groups' shares of right and wrong by the value of the column, each step counted 0.8 times
    as much as the next."""
    share: float
    """Share of the sampled groups whose rewards differed, a moving mean."""
    best: float | None
    """The highest reward; None before the first."""
    random: random.Random
    """The only source of chance, seeded by the run and the step."""
    options: Mapping[str, Any]
    """Other keys of `[selection]`, for a selection of a user's own."""

    def next(self) -> int:
        """Take a row from the stream."""
        row = self.row_at(self.position)
        self.position += 1
        return row

    def ask(self, row: int) -> Ask:
        """Ask for a whole group of a problem."""
        return Ask(row=row, count=self.num_generations)


Rounds = Generator[Sequence[Ask], Sequence[Scores], Sequence[int]]
"""Yields what to sample next, is sent the rewards in the same order, and returns the asks whose
groups are kept, counted over all rounds. A group that was continued is named by its last ask."""
