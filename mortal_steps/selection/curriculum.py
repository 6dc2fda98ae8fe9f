"""`[selection] type = "curriculum"`: problems that the policy solves about half of the time."""

from typing import ClassVar, Literal, Self

from pydantic import Field

from mortal_steps.config.selection import SelectionConfig
from mortal_steps.selection.draw import Draw, Rounds

FEW = 3.0
"""Groups, old ones counted less, with which a value of the column says something by itself."""
LEAST = 1e-3
"""Added to both parameters of a beta distribution, which have to be above 0."""
REST = 0.5
"""What new runs begin with."""


class Curriculum(SelectionConfig, extra="forbid"):
    """Thompson sampling over problems: of a pool of the next rows, a step samples those whose pass
    rate, drawn from what is known of it, promises the most variance. What is known of a problem is
    what its own groups have shown, and before that, what those of its column's value have."""

    one_round: ClassVar[bool] = True

    type: Literal["curriculum"] = "curriculum"
    column: str | None = None
    """Column of the dataset by which problems are alike: a difficulty, a source, a level. Without
    one, problems tell about themselves alone, which takes many epochs."""
    pool: int = Field(8, ge=1)
    """Rows that a step chooses from, in batches."""
    explore: float = Field(0.125, ge=0, le=1)
    """Share of a batch that is taken as it comes."""
    half_life: float = Field(50.0, gt=0)
    """Steps after which what a problem has shown counts half."""
    prior: float = Field(2.0, gt=0)
    """Completions that the column's value counts for."""
    rest: float | None = Field(None, ge=0, le=1)
    """How much less likely a problem is chosen right after it was sampled: 0 is not less, 1 is not
    at all. Half of that is gone after `half_life` steps. Rows that are alike therefore take turns.
    Default: 0.5; 0 in a run that an earlier version began."""

    def begun(self) -> Self:
        return self.model_copy(update={"rest": REST}) if self.rest is None else self

    def rounds(self, draw: Draw) -> Rounds:
        size = draw.batch_size
        pool = list(dict.fromkeys(draw.next() for _ in range(self.pool * size)))
        free = max(1, round(self.explore * size)) if self.explore else 0
        promise = {row: self._promise(draw, row) for row in pool[free:]}
        rows = [*pool[:free], *sorted(promise, key=lambda row: -promise[row])]
        rows = [rows[number % len(rows)] for number in range(size)]  # small datasets have fewer
        yield [draw.ask(row) for row in rows]
        return range(size)

    def _promise(self, draw: Draw, row: int) -> float:
        """Draw a pass rate of the problem and return the variance of its rewards, or less where the
        problem was sampled lately."""
        right, wrong = draw.by_value.get(draw.value_of(row), (0.0, 0.0))
        # What is not known counts as half a completion: more, and a dataset that is mostly too
        # hard would take in many of its rows by mistake.
        unknown = 0.5 / draw.num_generations
        mean = (right + unknown) / (right + wrong + 2 * unknown)
        weight = self.prior if right + wrong > FEW else 1.0
        own_right = own_wrong = faded = 0.0
        if (seen := draw.seen.get(row)) is not None:
            faded = 0.5 ** ((draw.step - seen.last_step) / self.half_life)
            own_right, own_wrong = seen.right * faded, seen.wrong * faded
        rate = draw.random.betavariate(
            mean * weight + own_right + LEAST, (1 - mean) * weight + own_wrong + LEAST
        )
        return rate * (1 - rate) * (1 - (self.rest or 0.0) * faded)
