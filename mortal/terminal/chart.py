"""A run's reward over its steps, in characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mortal_steps.report.summary import Point, downsample
from mortal_steps.report.units import number

WIDTH = 60
BESIDE = 16
"""Columns of a terminal beside the curve."""
HEIGHT = 8
FEWEST = 4
"""Steps that a curve needs at least."""
TRAINING, HELD_OUT, FORK = "·", "o", "┊"


def chart(
    training: Sequence[Point],
    held_out: Sequence[Point],
    *,
    fork: int | None = None,
    drawn: Mapping[str, str] = MappingProxyType({}),
    columns: int = WIDTH + BESIDE,
) -> list[str]:
    """Return lines of at most 76 columns, or as many as there are `columns`; none for too few
    steps.

    Each `·` is the mean training reward of some steps, each `o` an evaluation. `drawn` says how the
    completions of either are chosen.
    """
    if len(training) < FEWEST:
        return []
    width = max(FEWEST, min(WIDTH, columns - BESIDE))
    points = downsample(training, width)
    values = [value for _, value in [*points, *held_out]]
    low, high = min(values), max(values)
    last = max(step for step, _ in [*points, *held_out])
    rows = [[" "] * width for _ in range(HEIGHT)]

    def column(step: int) -> int:
        return min(width - 1, max(0, step - 1) * width // max(1, last))

    def row(value: float) -> int:
        return round((HEIGHT - 1) * (high - value) / (high - low)) if high > low else HEIGHT - 1

    if fork is not None:
        for marks in rows:
            marks[column(fork)] = FORK
    for mark, shown in ((TRAINING, points), (HELD_OUT, held_out)):
        for step, value in shown:
            rows[row(value)][column(step)] = mark
    lines = []
    for index, marks in enumerate(rows):
        value = high - (high - low) * index / (HEIGHT - 1)
        label = number(value) if index in (0, HEIGHT - 1) else ""
        lines.append(f"{label:>9} │{''.join(marks).rstrip()}")
    lines.append(f"{'step':>9} └{'1':<{width - len(str(last))}}{last}")
    legend = [f"{TRAINING} training{_how(drawn, 'training')}"]
    if held_out:
        legend.append(f"{HELD_OUT} held-out problems{_how(drawn, 'held_out')}")
    if fork is not None:
        legend.append(f"{FORK} fork")
    lines.append(f"{'':>9}  {'  '.join(legend)}")
    return lines


def _how(drawn: Mapping[str, str], which: str) -> str:
    return f" ({drawn[which]})" if which in drawn else ""
