"""`mortal grade`: how often a model solves the problems of a dataset."""

from collections import Counter
from math import inf
from statistics import fmean

from rich.text import Text

from mortal.terminal.console import console
from mortal_steps.orchestration.trials.grading import Grades
from mortal_steps.report.units import number
from mortal_steps.statistics.intervals import interval_of

BINS = 10
WIDTH = 40
"""Characters of the longest bar."""


def show_grades(grades: Grades, seed: int) -> None:
    """Print pass@1 and pass@k with their intervals, and how the pass rates are spread."""
    k = grades.num_generations
    for each in dict.fromkeys((1, k)):
        console.print(Text(_line(grades, each, seed)))
    rates = [rate for each in grades.scored if (rate := each.pass_rate) is not None]
    if not rates:
        console.print("no completion has a reward")
        return
    never, always = rates.count(0.0), rates.count(1.0)
    console.print(Text(_solutions(grades.success), style="dim"))
    counts = Counter(min(int(rate * BINS), BINS - 1) for rate in rates if 0 < rate < 1)
    longest = max(never, always, *counts.values(), 1)
    rows = [("never", never)]
    rows += [(f"{bin_ / BINS:.1f}-{(bin_ + 1) / BINS:.1f}", counts[bin_]) for bin_ in range(BINS)]
    for name, count in [*rows, ("always", always)]:
        bar = "█" * round(WIDTH * count / longest)
        console.print(Text(f"{name:>8} {count:>7,} {bar}"))
    _print_advice(grades, never + always)


def _solutions(success: float) -> str:
    if success == inf:
        return "all completions have the same reward, not above 0: none counts as a solution"
    return f"a solution has a reward of {number(success)} or more"


def _line(grades: Grades, k: int, seed: int) -> str:
    values = grades.pass_at(k)
    if not values:
        return f"pass@{k}   no problem has {k} completions with a reward"
    found = interval_of(values, (seed, k))
    ends = "" if found is None else f"  [{found.low:.3f}, {found.high:.3f}]"
    return f"pass@{k:<3} {fmean(values):.3f}{ends}  on {len(values):,} problems"


def _print_advice(grades: Grades, alike: int) -> None:
    k, scored = grades.num_generations, len(grades.scored)
    sizes = [size for each in grades.scored if (size := each.group_size) is not None]
    console.print(
        Text(
            f"{alike / scored:.0%} of the problems are solved by none or by all of {k} completions"
        )
    )
    if sizes:
        middle = sorted(sizes)[len(sizes) // 2]
        console.print(
            Text(f"of the others, half differ with groups of {middle} (training.num_generations)")
        )
