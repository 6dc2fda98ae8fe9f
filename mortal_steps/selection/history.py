"""What the steps of a run have shown of its problems: a function of their records, in order."""

from collections.abc import Callable
from dataclasses import dataclass

from mortal_steps.scores import differ
from mortal_steps.selection.record import FEWEST, Selected

KEPT_OF_GROUP = 0.5
"""Of what a problem has shown before, the part that counts beside a new group of it."""
KEPT_OF_VALUE = 0.8
"""The same of a value of the column, with each step."""
NEW_SHARE = 0.3
"""The part of a step in the moving mean of the share of groups whose rewards differ."""
FIRST_SHARE = 0.5


@dataclass(slots=True)
class Seen:
    """What earlier steps have shown of a problem."""

    visits: int = 0
    last_step: int = 0
    right: float = 0.0
    """Sum of its completions' rewards, each as a part of the range of all rewards of the run, and
    counted less the older it is."""
    wrong: float = 0.0
    """Completions less `right`."""


class History:
    """What is known of the problems after the steps before `step`. Records of later steps wait."""

    def __init__(self, value_of: Callable[[int], str]) -> None:
        """`value_of` returns a row's value of the column that the selection goes by."""
        self._value_of = value_of
        self._waiting: dict[int, Selected] = {}
        self.step = 0
        self.share = FIRST_SHARE
        """Share of the sampled groups whose rewards differed, a moving mean."""
        self.low: float | None = None
        """The lowest reward so far."""
        self.high: float | None = None
        self.seen: dict[int, Seen] = {}
        """By row, in the order in which they were seen first."""
        self.by_value: dict[str, tuple[float, float]] = {}
        """Groups' shares of right and wrong by the value of the column."""

    def add(self, step: int, record: Selected) -> None:
        """Take the record of a step, to learn from once it may be looked at."""
        self._waiting[step] = record

    def begin_at(self, step: int) -> None:
        """Know nothing of the steps before this one."""
        self.step = step

    def bring_to(self, step: int) -> None:
        """Learn from the steps before `step`, all of which have been added."""
        while self.step < step:
            self._learn(self._waiting.pop(self.step))

    def _learn(self, record: Selected) -> None:
        self.by_value = {
            value: (KEPT_OF_VALUE * right, KEPT_OF_VALUE * wrong)
            for value, (right, wrong) in self.by_value.items()
        }
        scored = [number for number, count in enumerate(record.num_scored) if count]
        if scored:
            lows, highs = ([ends[n] for n in scored] for ends in (record.lows, record.highs))
            self.low = min(lows if self.low is None else [self.low, *lows])
            self.high = max(highs if self.high is None else [self.high, *highs])
        differing = looked_at = 0
        for row, chain in record.groups():
            count = record.count(chain)
            if count < FEWEST:  # functions that fail say nothing of a problem
                continue
            looked_at += 1
            differing += record.differs(chain)
            self._learn_group(row, count, sum(record.sums[number] for number in chain))
        if looked_at:
            self.share += NEW_SHARE * (differing / looked_at - self.share)
        self.step += 1

    def _learn_group(self, row: int, count: int, total: float) -> None:
        low, high = self.low or 0.0, self.high or 0.0
        if differ(low, high):
            right = min(max((total - count * low) / (high - low), 0.0), float(count))
        else:
            right = count * float(high > 0)
        seen = self.seen.setdefault(row, Seen())
        seen.visits, seen.last_step = seen.visits + 1, self.step
        seen.right = KEPT_OF_GROUP * seen.right + right
        seen.wrong = KEPT_OF_GROUP * seen.wrong + count - right
        value = self._value_of(row)
        before = self.by_value.get(value, (0.0, 0.0))
        share = right / count
        self.by_value[value] = (before[0] + share, before[1] + 1 - share)
