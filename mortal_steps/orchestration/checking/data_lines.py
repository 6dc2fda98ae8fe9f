"""What a run's data and rewards look like, in words: a line at its start, more in a dry run."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from mortal_steps.config import DataConfig
from mortal_steps.data.problems import ReadProblems
from mortal_steps.policy.starting_model.prompt_lengths import PromptLengths
from mortal_steps.report.units import counted, number
from mortal_steps.rewards.worker import MADE_UP_TEXT
from mortal_steps.runs.objects import is_object
from mortal_steps.types import Problem

logger = logging.getLogger(__name__)

FIRST_ROWS = 100
"""Rows that are looked at for what all rows are like."""
LONGEST_PROMPT = 600
"""Characters of a prompt that are shown: its beginning and its end."""

Scores = Mapping[str, Sequence[float | None]]
"""What each reward said of a made-up completion of a few problems."""


def rows_in_words(data: DataConfig, found: ReadProblems) -> str:
    """Say what became of the rows, such as `40 rows: 8 held out, 3 left out of training because
    their prompt is held out (data.exclude_held_out), 29 to train on`."""
    rows, shared = counted(found.num_rows, "row"), found.num_shared
    trained = f"{len(found.train):,} to train on"
    parts = [f"{found.num_drawn:,} held out"] if found.num_drawn else []
    if shared and data.exclude_held_out:
        their = "its prompt is" if shared == 1 else "their prompt is"
        parts.append(
            f"{shared:,} left out of training because {their} held out (data.exclude_held_out)"
        )
    elif shared:
        trained += (
            f", {shared:,} of them with a prompt that is held out, too "
            "(data.exclude_held_out = false)"
        )
    text = f"{rows}: {', '.join([*parts, trained])}"
    if len(found.held_out) > found.num_drawn:
        text += f"; {len(found.held_out):,} held out ({_held_out_key(data)})"
    return text


def _held_out_key(data: DataConfig) -> str:
    """Name what gives the held-out rows, as the user does."""
    if any(map(is_object, data.eval_sources.values())):
        return "eval_dataset"
    if data.eval_source is not None:
        return "data.eval_source"
    return "data.eval_sets" if data.eval_sets else "data.eval_split"


def report_data(
    lengths: PromptLengths, first_id: str, scores: Scores, show: Callable[[str], None] | None
) -> None:
    """Show the lines of a dry run on data and rewards; nothing if it is none."""
    if show is not None:
        for line in data_lines(lengths, first_id, scores):
            show(line)


def data_lines(lengths: PromptLengths, first_id: str, scores: Scores) -> Iterator[str]:
    """Yield lines on the prompts as the model reads them, and on what rewards said."""
    if lengths.first:
        yield f"{'prompt':<11}{first_id}, as the model reads it: {shortened(lengths.first)!r}"
    yield (
        f"{'':<11}the longest has {counted(lengths.longest, 'token')}; "
        f"{max(0, lengths.fits):,} fit beside the completion"
    )
    for name, values in scores.items():
        said = ", ".join("None (it abstains)" if each is None else number(each) for each in values)
        yield f"{'reward':<11}{name} = {said} for the text {MADE_UP_TEXT!r}"


def shortened(text: str) -> str:
    """Return a text without its middle, if it is long."""
    if len(text) <= LONGEST_PROMPT:
        return text
    half = LONGEST_PROMPT // 2
    return f"{text[:half]} ... {text[-half:]}"


def warn_of_repeats(batch_size: int, num_problems: int) -> None:
    """Warn if a step takes the same problem more than once."""
    if batch_size > num_problems:
        logger.warning(
            "training.batch_size = %d is more than the %s there are to train on: every step takes "
            "some of them several times",
            batch_size,
            counted(num_problems, "problem"),
        )


def warn_of_answers(problems: Sequence[Problem]) -> None:
    """Warn if the first prompts end with an answer, as the rows of a dataset for SFT do."""
    for row in problems[:FIRST_ROWS]:
        if not isinstance(row.prompt, str) and row.prompt[-1].get("role") == "assistant":
            logger.warning(
                "the prompt of row %s ends with a message of the assistant: the model is shown it, "
                "and continues after it. If it is the answer, move it into a column of its own, "
                "such as 'answer', and let data.prompt_column name the messages before it",
                row.id,
            )
            return
