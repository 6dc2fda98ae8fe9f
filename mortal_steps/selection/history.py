"""What the steps of a run have shown of its problems, and the records that this is made from:

selection/000012.json           what step 12 sampled, scored and kept
selection/history-000050.json   all that is known after the steps before 50
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields

from mortal_steps.errors import StoreError
from mortal_steps.selection.draw import Ask, Scores, Seen
from mortal_steps.store import RunStore

EVERY = 50
"""Steps from one history to the next."""
KEPT_OF_GROUP = 0.5
"""Of what a problem has shown before, the part that counts beside a new group of it."""
KEPT_OF_VALUE = 0.8
"""The same of a value of the column, with each step."""
NEW_SHARE = 0.3
"""The part of a step in the moving mean of the share of groups whose rewards differ."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Selected:
    """What a step sampled and kept. All lists but `kept` have an entry for each ask, in the order
    of the rounds."""

    step: int
    position: int
    """Of the stream of rows, after the step."""
    num_rounds: int
    rows: Sequence[int]
    num_scored: Sequence[int]
    """Completions that have a reward; of those that the ask itself sampled."""
    sums: Sequence[float]
    """Of their rewards."""
    lows: Sequence[float]
    highs: Sequence[float]
    goes_on: Sequence[int | None]
    kept: Sequence[int]
    """The asks whose groups are trained on."""

    def groups(self) -> Iterator[tuple[int, Sequence[int]]]:
        """Yield the row of each group, and the asks that it is made of."""
        parts: dict[int, list[int]] = {}
        for number, before in enumerate(self.goes_on):
            parts[number] = [*(parts.pop(before) if before is not None else ()), number]
        yield from ((self.rows[chain[-1]], chain) for chain in parts.values())


def selected(
    step: int,
    position: int,
    num_rounds: int,
    asks: Sequence[Ask],
    scores: Sequence[Scores],
    kept: Sequence[int],
) -> Selected:
    """Return the record of a step."""
    known = [each.known for each in scores]
    return Selected(
        step=step,
        position=position,
        num_rounds=num_rounds,
        rows=[ask.row for ask in asks],
        num_scored=[len(each) for each in known],
        sums=[sum(each) for each in known],
        lows=[min(each, default=0.0) for each in known],
        highs=[max(each, default=0.0) for each in known],
        goes_on=[ask.goes_on for ask in asks],
        kept=list(kept),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A history as a record, in columns."""

    step: int
    share: float
    low: float | None
    high: float | None
    rows: Sequence[int]
    visits: Sequence[int]
    last_step: Sequence[int]
    right: Sequence[float]
    wrong: Sequence[float]
    values: Sequence[str]
    value_right: Sequence[float]
    value_wrong: Sequence[float]


class History:
    """What is known of the problems after the steps before `step`."""

    def __init__(
        self, store: RunStore, value_of: Callable[[int], str], *, first_step: int = 0
    ) -> None:
        """`first_step` is the run's; a fork may have no record of the steps before."""
        self._store, self._value_of, self._first_step = store, value_of, first_step
        self.step = 0
        self.share = 0.5
        self.low: float | None = None
        """The lowest reward so far."""
        self.high: float | None = None
        self.seen: dict[int, Seen] = {}
        self.by_value: dict[str, tuple[float, float]] = {}

    def bring_to(self, step: int) -> None:
        """Read what is recorded of the steps before `step`. Raises `CorruptFileError` for a damaged
        record, and `StoreError` for one that is gone."""
        if self.step > step:
            raise StoreError(f"the history of step {self.step} is not that of step {step}")
        if step - self.step > EVERY or not self.step:
            self._load(step)
        while self.step < step:
            if self.step < self._first_step and not self._is_recorded(self.step):
                self.step += 1
                continue
            self._learn(read_selected(self._store, self.step))
            if self.step % EVERY == 0:
                self._store.write_record(history_file(self.step), self._snapshot(), Snapshot)

    def _is_recorded(self, step: int) -> bool:
        return self._store.path(selected_file(step)).exists()

    def _learn(self, record: Selected) -> None:
        self.by_value = {
            value: (KEPT_OF_VALUE * right, KEPT_OF_VALUE * wrong)
            for value, (right, wrong) in self.by_value.items()
        }
        scored = [number for number, count in enumerate(record.num_scored) if count]
        if scored:
            self.low = min([record.lows[n] for n in scored] + _known(self.low))
            self.high = max([record.highs[n] for n in scored] + _known(self.high))
        differing = looked_at = 0
        for row, chain in record.groups():
            count = sum(record.num_scored[number] for number in chain)
            if count < 2:
                continue
            looked_at += 1
            differing += differs(record, chain)
            self._learn_group(row, count, sum(record.sums[number] for number in chain), record.step)
        if looked_at:
            self.share += NEW_SHARE * (differing / looked_at - self.share)
        self.step = record.step + 1

    def _learn_group(self, row: int, count: int, total: float, step: int) -> None:
        low, high = self.low or 0.0, self.high or 0.0
        right = (total - count * low) / (high - low) if high > low else count * float(high > 0)
        seen = self.seen.setdefault(row, Seen())
        seen.visits, seen.last_step = seen.visits + 1, step
        seen.right = KEPT_OF_GROUP * seen.right + right
        seen.wrong = KEPT_OF_GROUP * seen.wrong + count - right
        value = self._value_of(row)
        before = self.by_value.get(value, (0.0, 0.0))
        share = right / count
        self.by_value[value] = (before[0] + share, before[1] + 1 - share)

    def _snapshot(self) -> Snapshot:
        rows = sorted(self.seen)
        columns = {
            each.name: [getattr(self.seen[row], each.name) for row in rows] for each in fields(Seen)
        }
        return Snapshot(
            step=self.step,
            share=self.share,
            low=self.low,
            high=self.high,
            rows=rows,
            values=list(self.by_value),
            value_right=[right for right, _ in self.by_value.values()],
            value_wrong=[wrong for _, wrong in self.by_value.values()],
            **columns,
        )

    def _load(self, step: int) -> None:
        """Begin with the newest history up to `step`; a damaged one is passed over."""
        for at in range(step - step % EVERY, self.step, -EVERY):
            found = self._store.find_whole(history_file(at), Snapshot, "an older one is used")
            if found is None:
                continue
            past = found[1]
            self.step, self.share, self.low, self.high = past.step, past.share, past.low, past.high
            columns = zip(past.visits, past.last_step, past.right, past.wrong, strict=True)
            seen = (Seen(*each) for each in columns)
            self.seen = dict(zip(past.rows, seen, strict=True))
            values = zip(past.value_right, past.value_wrong, strict=True)
            self.by_value = dict(zip(past.values, values, strict=True))
            return


def differs(record: Selected, chain: Sequence[int]) -> bool:
    """Whether the rewards of a group, which these asks make up, differ."""
    scored = [number for number in chain if record.num_scored[number]]
    ends = [end for number in scored for end in (record.lows[number], record.highs[number])]
    return Scores(tuple(ends)).differ


def verdicts(record: Selected, best: float | None) -> dict[str, float]:
    """Return the shares of the sampled groups whose rewards differ (`differing`), whose rewards are
    all the `best` of the run so far (`solved`), all equal and less (`unsolved`), or missing but for
    one (`masked`)."""
    counts = dict.fromkeys(("differing", "solved", "unsolved", "masked"), 0)
    groups = list(record.groups())
    highs = [high for high, count in zip(record.highs, record.num_scored, strict=True) if count]
    highest = max(highs + _known(best), default=0.0)
    for _, chain in groups:
        if sum(record.num_scored[number] for number in chain) < 2:
            verdict = "masked"
        elif differs(record, chain):
            verdict = "differing"
        else:
            high = max(record.highs[number] for number in chain if record.num_scored[number])
            verdict = "solved" if high >= highest else "unsolved"
        counts[verdict] += 1
    return {name: count / len(groups) for name, count in counts.items()}


def read_selected(store: RunStore, step: int) -> Selected:
    """Raises `CorruptFileError` and `StoreError` as `History.bring_to` does."""
    found = store.find_record(selected_file(step), Selected)
    if found is None:
        raise StoreError(f"{store.path(selected_file(step))} is gone; restore it")
    return found[1]


def selected_file(step: int) -> str:
    return f"selection/{step:06d}.json"


def history_file(step: int) -> str:
    return f"selection/history-{step:06d}.json"


def files_before(store: RunStore, step: int, staleness: int) -> list[str]:
    """Return what a run that begins at `step` has to have: the newest history that its first step
    may look at, and the records since."""
    oldest = max(0, step - staleness)
    first = oldest - oldest % EVERY
    files = [history_file(first)] if first else []
    files += [selected_file(number) for number in range(first, step)]
    return [file for file in files if store.path(file).exists()]


def _known(value: float | None) -> list[float]:
    return [] if value is None else [value]
