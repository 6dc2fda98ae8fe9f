"""`[selection] type = "dynamic"`: DAPO's dynamic sampling, https://arxiv.org/abs/2503.14476."""

import math
from typing import Literal

from pydantic import Field

from mortal_steps.config.selection import SelectionConfig
from mortal_steps.selection.draw import Draw, Rounds, Scores

LEAST_SHARE = 0.1
"""Below which the share of groups whose rewards differ is not believed."""


class Dynamic(SelectionConfig, extra="forbid"):
    """Rounds of further problems until a batch of groups have rewards that differ: fewer steps, and
    more sampled tokens. After `max_rounds` the batch is filled with groups whose rewards do not
    differ, in the order in which they were drawn."""

    type: Literal["dynamic"] = "dynamic"
    max_rounds: int = Field(4, ge=1)
    """Rounds of a step, at most. Each is a batch at most."""

    def rounds(self, draw: Draw) -> Rounds:
        size, scores = draw.batch_size, list[Scores]()
        for _ in range(self.max_rounds):
            found = sum(each.differ for each in scores)
            if found >= size:
                break
            share = (found + draw.share) / (len(scores) + 1)
            wanted = math.ceil((size - found) / max(share, LEAST_SHARE))
            # The first has a whole batch, so that a batch can be filled.
            count = min(wanted, size) if scores else size
            scores += yield [draw.ask(draw.next()) for _ in range(count)]
        differing = [number for number, each in enumerate(scores) if each.differ][:size]
        others = [number for number, each in enumerate(scores) if not each.differ]
        return sorted(differing + others[: size - len(differing)])
