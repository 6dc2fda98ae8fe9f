"""`[selection] type = "screen"`: a few completions of many problems first, the rest where they
differ; after SPEED-RL, https://arxiv.org/abs/2506.09016."""

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
    max_rounds: int = Field(8, ge=2)
    """Rounds of a step, at most."""

    def rounds(self, draw: Draw) -> Rounds:
        size, rest = draw.num_generations, draw.num_generations - self.first
        left, share = draw.batch_size * size, draw.share
        asks: list[Ask] = []
        scores: list[Scores] = []
        kept: list[int] = []
        for _ in range(self.max_rounds // 2):
            room = min(left // size, draw.batch_size - len(kept))
            if room < 1:
                break
            count = max(1, min(int(left / (self.first + share * rest) * ROOM), left // self.first))
            begun = [Ask(row=draw.next(), count=self.first) for _ in range(count)]
            answer = yield begun
            first = len(asks)
            asks, scores, left = asks + begun, [*scores, *answer], left - count * self.first
            differing = [first + n for n, each in enumerate(answer) if each.differ]
            share = (share + len(differing)) / (1 + count)
            chosen = differing[: min(left // rest, room)]
            if chosen:
                more = [Ask(row=asks[n].row, count=rest, goes_on=n) for n in chosen]
                chosen = list(range(len(asks), len(asks) + len(more)))
                scores += yield more
                asks, left = asks + more, left - len(more) * rest
            kept += chosen
        short = -len(kept) % draw.multiple
        if not short and kept:
            return kept
        going_on = {asks[n].goes_on for n in kept} | set(kept)
        idle = [n for n, ask in enumerate(asks) if ask.count == self.first and n not in going_on]
        more = [Ask(row=asks[n].row, count=rest, goes_on=n) for n in idle[: short or draw.multiple]]
        yield more
        return [*kept, *range(len(asks), len(asks) + len(more))]

    def check(self, training: TrainingConfig) -> None:
        if self.first >= training.num_generations:
            raise ValueError(
                f"selection.first = {self.first} is not less than training.num_generations = "
                f"{training.num_generations}; choose about a quarter of it"
            )
