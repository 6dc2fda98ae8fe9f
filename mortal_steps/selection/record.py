"""What a step sampled and kept: a part of its batch's record, and a line of `selections.jsonl`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mortal_steps.scores import differ
from mortal_steps.selection.draw import Ask, Scores

FEWEST = 2
"""Rewards by which completions can differ."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Selected:
    """What a step sampled and kept. All lists but `kept` have an entry for each ask, in the order
    of the rounds."""

    position: int
    """Of the stream of rows, after the step."""
    num_rounds: int
    best: float | None
    """The highest reward of the steps that the selection could look at; None before the first."""
    rows: Sequence[int]
    """Rows of the training problems."""
    num_scored: Sequence[int]
    """Completions that have a reward; of those that the ask itself sampled."""
    sums: Sequence[float]
    """Of their rewards."""
    lows: Sequence[float]
    highs: Sequence[float]
    goes_on: Sequence[int | None]
    """The ask whose group this one continues."""
    kept: Sequence[int]
    """The asks whose groups are trained on."""

    def groups(self) -> Iterator[tuple[int, Sequence[int]]]:
        """Yield the row of each group, and the asks that it is made of."""
        parts: dict[int, list[int]] = {}
        for number, before in enumerate(self.goes_on):
            parts[number] = [*(parts.pop(before) if before is not None else ()), number]
        yield from ((self.rows[chain[-1]], chain) for chain in parts.values())

    def count(self, chain: Sequence[int]) -> int:
        """Return how many completions of a group have a reward."""
        return sum(self.num_scored[number] for number in chain)

    def differs(self, chain: Sequence[int]) -> bool:
        """Return whether the rewards of a group differ."""
        scored = [number for number in chain if self.num_scored[number]]
        ends = [end for number in scored for end in (self.lows[number], self.highs[number])]
        return Scores(tuple(ends)).differ

    def shares(self) -> dict[str, float]:
        """Return the shares of the sampled groups whose rewards differ (`differing`), are all the
        best of the run so far (`solved`), are equal and less (`unsolved`), or are missing but for
        one (`masked`)."""
        counts = dict.fromkeys(("differing", "solved", "unsolved", "masked"), 0)
        highs = [high for high, count in zip(self.highs, self.num_scored, strict=True) if count]
        best = max([*highs, *([] if self.best is None else [self.best])], default=0.0)
        groups = list(self.groups())
        for _, chain in groups:
            if self.count(chain) < FEWEST:
                verdict = "masked"
            elif self.differs(chain):
                verdict = "differing"
            else:
                high = max(self.highs[number] for number in chain if self.num_scored[number])
                verdict = "unsolved" if differ(high, best) else "solved"
            counts[verdict] += 1
        return {name: count / len(groups) for name, count in counts.items()}


def selected(
    position: int,
    num_rounds: int,
    asks: Sequence[Ask],
    scores: Sequence[Scores],
    kept: Sequence[int],
    *,
    best: float | None,
) -> Selected:
    """Return the record of a step."""
    known = [each.known for each in scores]
    return Selected(
        position=position,
        num_rounds=num_rounds,
        best=best,
        rows=[ask.row for ask in asks],
        num_scored=[len(each) for each in known],
        sums=[sum(each) for each in known],
        lows=[min(each, default=0.0) for each in known],
        highs=[max(each, default=0.0) for each in known],
        goes_on=[ask.goes_on for ask in asks],
        kept=sorted(kept),
    )
