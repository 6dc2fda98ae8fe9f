"""What a run's selection has sampled lately, and what of it the run trains on: a part of the
report."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mortal_steps.report.markdown import bar, table
from mortal_steps.report.reward_functions import WINDOW
from mortal_steps.report.units import counted

SHARES = {
    "differing": "differ",
    "solved": "are all the best of the run",
    "unsolved": "are equal, and less",
    "masked": "are missing, but for one",
}


def selection_in_words(metrics: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the paragraphs of the report; none for a run that trains on all that it samples."""
    rows = [row for row in metrics[-WINDOW:] if "selection/rounds" in row]
    if not rows:
        return

    def mean(key: str) -> float:
        return sum(float(row[key]) for row in rows) / len(rows)

    yield "## Selection"
    sampled, rounds = mean("num_sampled_completions"), mean("selection/rounds")
    yield (
        f"A step sampled {sampled:,.0f} completions in {rounds:.1f} rounds and trained on "
        f"{mean('num_kept_groups'):.1f} groups: means of the last {counted(len(rows), 'step')}. "
        "The reward in training is that of the problems that were selected; held-out problems show "
        "what the model can do."
    )
    shares = {words: mean(f"selection/{name}") for name, words in SHARES.items()}
    yield table(
        ["rewards of a sampled group", "share", ""],
        [[words, f"{100 * share:.0f} %", bar(share)] for words, share in shares.items()],
        "lrl",
    )
