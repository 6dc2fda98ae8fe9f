"""A fifth of the tool calls find a service down: what stock TRL and MORTAL make of it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.episodes.shop import OUTAGE
from benchmarks.episodes.sides import Mortal, Step, Stock

PROBLEMS, GENERATIONS, CALLS, SHARE = 32, 4, 2, 0.2
RETRIES = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of the step, beside the same one without faults."""

    side: str
    passes: bool
    """Whether a call that is made again is answered."""
    struck: int
    """Episodes with such a call."""
    told: int
    """Episodes in which the model read the outage as an answer."""
    invented: int
    """Scores that are not those without faults."""
    new_zeros: int
    masked: int
    wrongly_masked: int
    """Of these, episodes that no fault struck."""
    untouched: int
    """Groups that no fault struck."""
    same_bits: int
    """Of these, those whose advantages have the same bits."""

    @property
    def holds(self) -> bool:
        """Whether nothing was invented, and nothing changed that no fault struck."""
        wrong = self.told + self.invented + self.wrongly_masked
        return not wrong and self.same_bits == self.untouched


def strike_all(folder: Path, model: str, seed: int) -> list[Outcome]:
    """Strike the same calls in each of the sides."""
    struck, outcomes = _drawn(seed), []
    plain = {side: _play(side, folder / f"{side}-0", model, {}, "") for side in ("trl", "mortal")}
    for passes in (True, False):
        once = ""
        for side, retries in (("trl", None), ("mortal", 0), ("mortal", RETRIES)):
            name = side if retries is None else f"{side}, retries = {retries}"
            if passes:
                (once_folder := folder / f"once-{name}").mkdir()
                once = str(once_folder)
            step = _play(side, folder / f"{name}-{passes}", model, struck, once, retries)
            outcomes.append(_compared(name, passes, step, plain[side], struck))
    return outcomes


def _drawn(seed: int) -> Mapping[int, Sequence[str]]:
    """Draw the calls that fail, by the row of their episode."""
    rng = random.Random(seed)
    calls = [(row, call) for row in range(PROBLEMS * GENERATIONS) for call in range(CALLS)]
    struck: dict[int, list[str]] = {}
    for row, call in calls:
        if rng.random() < SHARE:
            struck.setdefault(row, []).append(f"{row}/{call}")
    return struck


def _play(
    side: str,
    folder: Path,
    model: str,
    struck: Mapping[int, Sequence[str]],
    once: str,
    retries: int | None = None,
) -> Step:
    """Take one step."""
    rows: list[dict[str, Any]] = []
    for problem in range(PROBLEMS):
        episodes = range(problem * GENERATIONS, (problem + 1) * GENERATIONS)
        calls = [call for row in episodes for call in struck.get(row, ())]
        rows.append({"target": CALLS, "struck": calls or [""], "once": once})
    if side == "trl":
        stock = Stock(folder, model, rows, generations=GENERATIONS)
        stock.engine.num_calls, stock.engine.samples = CALLS, False
        return stock.step()
    mortal = Mortal(
        folder,
        model,
        rows,
        generations=GENERATIONS,
        on_error="mask",
        retries=retries or 0,
    )
    try:
        mortal.engine.num_calls, mortal.engine.samples = CALLS, False
        return mortal.step(0)
    finally:
        mortal.close()


def _compared(
    name: str, passes: bool, step: Step, plain: Step, struck: Mapping[int, Sequence[str]]
) -> Outcome:
    rows = range(PROBLEMS * GENERATIONS)
    both = list(zip(step.scores, plain.scores, strict=True))
    masked = [row for row in rows if step.scores[row] is None]
    groups = [range(first, first + GENERATIONS) for first in rows[::GENERATIONS]]
    untouched = [group for group in groups if not any(row in struck for row in group)]
    return Outcome(
        side=name,
        passes=passes,
        struck=len(struck),
        told=sum(OUTAGE in text for text in step.texts),
        invented=sum(score is not None and score != right for score, right in both),
        new_zeros=sum(score == 0.0 != right for score, right in both),
        masked=len(masked),
        wrongly_masked=sum(row not in struck for row in masked),
        untouched=len(untouched),
        same_bits=sum(
            [step.advantages[row] for row in group] == [plain.advantages[row] for row in group]
            for group in untouched
        ),
    )
