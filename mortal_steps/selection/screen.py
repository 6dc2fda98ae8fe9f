"""`[selection] type = "screen"`: a few completions of many problems first, the rest where they
differ; after SPEED-RL, https://arxiv.org/abs/2506.09016."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from mortal_steps.config.selection import SelectionConfig
from mortal_steps.config.training import TrainingConfig
from mortal_steps.selection.draw import Ask, Draw, Rounds, Scores

ROOM = 0.9
"""Part of what the budget seems to allow that a round asks for: more problems may go on than the
steps before let expect."""


class Screen(SelectionConfig, extra="forbid"):
    """Within the completions of an ordinary step, `first` of each of many problems, and the rest of
    the group where their rewards differ. A step trains on as many groups as come of that, at most
    `training.batch_size`. It needs no column of the dataset and no epochs."""

    type: Literal["screen"] = "screen"
    first: int = Field(4, ge=2)
    """Completions by which a problem is judged."""
    max_rounds: int = Field(9, ge=3)
    """Rounds of a step, at most."""

    def rounds(self, draw: Draw) -> Rounds:
        size, rest = draw.num_generations, draw.num_generations - self.first
        left, share = draw.batch_size * size, draw.share
        asks: list[Ask] = []
        differ: list[bool] = []
        kept: list[int] = []
        for _ in range((self.max_rounds - 1) // 2):
            reserve = max(0, draw.multiple - len(kept)) * rest
            room = min((left - reserve) // self.first, draw.batch_size - len(kept))
            if room < 1 or left < size:
                break
            wanted = int((left - reserve) / (self.first + share * rest) * ROOM)
            # At least as many as a step has to train on, if none of them differs.
            least = 1 if asks else draw.multiple
            count = min(max(least, wanted), (left - reserve) // self.first)
            begun = [Ask(row=draw.next(), count=self.first) for _ in range(count)]
            first, answer = len(asks), (yield begun)
            asks, differ, left = asks + begun, differ + _differ(answer), left - count * self.first
            found = [number for number in range(first, len(asks)) if differ[number]]
            share = (share + len(found)) / (1 + count)
            chosen = found[: min(left // rest, draw.batch_size - len(kept))]
            if chosen:
                more = [Ask(row=asks[n].row, count=rest, goes_on=n) for n in chosen]
                kept += range(len(asks), len(asks) + len(more))
                answer = yield more
                asks, differ, left = asks + more, differ + _differ(answer), left - len(more) * rest
        whole = len(kept) - len(kept) % draw.multiple
        if whole:
            return kept[:whole]
        return (yield from self._filled(draw, asks, differ, kept))

    def _filled(self, draw: Draw, asks: list[Ask], differ: list[bool], kept: list[int]) -> Rounds:
        """Complete as many groups as a step has to have at least, those that differ first."""
        taken = {asks[number].goes_on for number in kept} | set(kept)
        idle = [n for n, ask in enumerate(asks) if ask.goes_on is None and n not in taken]
        idle = sorted(idle, key=lambda number: not differ[number])[: draw.multiple - len(kept)]
        rest = draw.num_generations - self.first
        yield [Ask(row=asks[n].row, count=rest, goes_on=n) for n in idle]
        return [*kept, *range(len(asks), len(asks) + len(idle))]

    def check(self, training: TrainingConfig) -> None:
        if self.first >= training.num_generations:
            raise ValueError(
                f"selection.first = {self.first} is not less than training.num_generations = "
                f"{training.num_generations}; choose about a quarter of it, 2 at least"
            )


def _differ(scores: Sequence[Scores]) -> list[bool]:
    return [each.differ for each in scores]
