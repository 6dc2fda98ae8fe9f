"""A run's logs as what trackers are told: one entry a step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mortal_steps.errors import CorruptFileError, DataError
from mortal_steps.report.samples import Sample, prompt_text, samples_of
from mortal_steps.report.trackers.base import STEP, Entry
from mortal_steps.runs.run import Run
from mortal_steps.system.texts import storable

Row = Mapping[str, Any]

SAMPLES_OF_A_KIND = 4
"""Best, worst and masked completions each, in a table."""
LONGEST_TEXT = 2000
"""Characters of a prompt or a completion in a table."""
AFTER_A_STEP = ("evaluate", "checkpoint")
"""Stages whose lines name the step that was done before; those of others, the step under way."""


def entry_of(
    step: int,
    metrics: Row | None,
    evaluation: Row | None,
    timings: Iterable[Row] = (),
    dollars: Mapping[str, float] | None = None,
    samples: Sequence[Sample] = (),
) -> Entry:
    """What is told of a step, of its lines in the logs and of what the run has cost so far."""
    values = {
        **_numbers("train", metrics or {}),
        **_numbers("eval", evaluation or {}),
        **_seconds(timings),
        **{f"cost/{kind}_dollars": value for kind, value in (dollars or {}).items()},
        STEP: float(step),
    }
    return Entry(step=step, values=values, samples=[_cells(sample) for sample in samples])


def step_of_timing(row: Row) -> int:
    """The step whose entry tells a line of timings.jsonl: train steps done when it is told."""
    done: int = row["step"]
    return done if row["stage"] in AFTER_A_STEP else done + 1


def samples_at(run: Run, step: int, every: int) -> list[Sample]:
    """Completions of a step that has a table: the first, the last, and each `every` steps.

    None where the run does not keep them any more.
    """
    if not every or not (step == 1 or step % every == 0 or step == run.info.num_steps):
        return []
    try:
        return samples_of(run, SAMPLES_OF_A_KIND, step=step)
    except (DataError, CorruptFileError):
        return []


def _numbers(prefix: str, row: Row) -> dict[str, float]:
    return {
        f"{prefix}/{key}": float(value)
        for key, value in row.items()
        if key != "step" and isinstance(value, int | float)
    }


def _seconds(timings: Iterable[Row]) -> dict[str, float]:
    """By stage: inside workers, where parallel calls add up, and waiting for them."""
    total: dict[str, float] = defaultdict(float)
    for row in timings:
        total[f"time/{row['stage']}_s"] += row["busy_s"]
        total[f"time/{row['stage']}_wait_s"] += row["wait_s"]
    return dict(total)


def _cells(sample: Sample) -> list[Any]:
    prompt = storable(prompt_text(sample.prompt)[-LONGEST_TEXT:])
    text = storable(sample.text[:LONGEST_TEXT])
    reward = None if sample.reward is None else float(sample.reward)
    return [sample.kind, sample.problem_id, prompt, text, reward]
