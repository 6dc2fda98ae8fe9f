"""The end of a run before its last step (`[training.until]`): decided once, recorded, then obeyed.

What scores, tokens and rollouts decide is a function of the run's logs up to the step, so that a
run that is killed before the record decides the same. Dollars and hours are no such function:
what counts is the record.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mortal_steps.config.until import UntilConfig
from mortal_steps.errors import ConfigError
from mortal_steps.extensions import nearest
from mortal_steps.store import RunStore

FILE = "end.json"

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """Why a run ended after a step that is not its last."""

    step: int
    """Train steps done."""
    key: str
    """Of `[training.until]`, such as `goal`."""
    why: str
    """For people, such as `exact_match was at least 0.9 in 2 evaluations in a row`."""


def read_end(store: RunStore) -> Ended | None:
    """Return the end, if there is one; a damaged record is logged and counts as none."""
    found = store.find_whole(FILE, Ended, "the end is decided again")
    return None if found is None else found[1]


def decide(
    until: UntilConfig,
    step: int,
    *,
    metrics: Sequence[Row],
    evaluations: Sequence[Row],
    dollars: float,
    hours: float,
    lows: Mapping[str, float] | None = None,
    before: Sequence[Row] = (),
) -> Ended | None:
    """Return why the run ends after `step` steps, of which these are the lines of the logs; None if
    it goes on. `lows` are the lower ends of the last evaluation's intervals, by score; `before` are
    the lines of a fork's parent."""
    tokens = _tokens(metrics, before)
    for key, why in _reasons(until, metrics, evaluations, tokens, dollars, hours, lows or {}):
        return Ended(step=step, key=key, why=why)
    return None


def check_interval(until: UntilConfig, row: Row, by_problem: Collection[str]) -> None:
    """Raise `ConfigError` for a goal that no evaluation can reach: for the interval of a score of
    which there are none by problem. `row` is an evaluation's line, `by_problem` are its scores of
    which there are."""
    name = until.metric or _merit([row])
    if until.goal is None or until.by != "interval":
        return
    if row.get(name) is None or name in by_problem:
        return
    raise ConfigError(
        f'training.until.by = "interval": {name} is one number without scores by problem, as a '
        "harness may answer it, and has no interval; set training.until.by = 'mean', leave "
        "training.until.goal out, or let the harness answer scores by problem"
    )


def missing_metric(until: UntilConfig, rows: Sequence[Row], begins: str = "") -> str | None:
    """Return the words for a metric that the evaluations turn out not to have. `rows` are their
    lines; what their scores are called that begin with `begins`, nobody knows before: TRL names
    those of held-out rows, and a harness its own."""
    there = dict.fromkeys(name for row in rows for name in row if name.startswith(begins))
    there.pop("step", None)
    if not there or not until.metric.startswith(begins) or until.metric in there:
        return None
    near = nearest(until.metric, there, cutoff=0.6)
    return (
        f"training.until.metric = {until.metric!r} is no score of the evaluations, which have "
        f"{', '.join(there)}{f'; did you mean {near}?' if near else ''}"
    )


def _reasons(
    until: UntilConfig,
    metrics: Sequence[Row],
    evaluations: Sequence[Row],
    tokens: int,
    dollars: float,
    hours: float,
    lows: Mapping[str, float],
) -> Iterator[tuple[str, str]]:
    name = until.metric or _merit(evaluations)
    lower = name.endswith("loss")
    known = [row[name] for row in evaluations if row.get(name) is not None]
    scores = [score for score in known if math.isfinite(score)]
    if until.by == "interval":
        low = lows.get(name)
        if until.goal is not None and low is not None and low >= until.goal:
            yield "goal", f"the lower end of {name}, {low:.4g}, was at least {until.goal:g}"
    elif until.goal is not None and len(scores) >= until.evaluations:
        last = scores[-until.evaluations :]
        if all(score <= until.goal if lower else score >= until.goal for score in last):
            most = "at most" if lower else "at least"
            times = f"{until.evaluations} evaluations in a row"
            yield "goal", f"{name} was {most} {until.goal:g} in {times}"
    if until.patience is not None and len(scores) > until.patience:
        best = min(scores) if lower else max(scores)
        since = len(scores) - 1 - scores.index(best)
        if since >= until.patience:
            yield "patience", f"{name} was {best:.4g} {since} evaluations ago and no better since"
    if until.max_tokens is not None and tokens >= until.max_tokens:
        yield "max_tokens", f"{tokens:,} tokens are used (max_tokens = {until.max_tokens:,})"
    rollouts = sum(row.get("num_scored", 0) for row in metrics)
    if until.max_rollouts is not None and rollouts >= until.max_rollouts:
        of = f"max_rollouts = {until.max_rollouts:,}"
        yield "max_rollouts", f"{rollouts:,} completions are scored ({of})"
    if until.max_dollars is not None and dollars >= until.max_dollars:
        of = f"max_dollars = {until.max_dollars:g}"
        yield "max_dollars", f"{dollars:.2f} dollars are spent ({of})"
    if until.max_hours is not None and hours >= until.max_hours:
        yield "max_hours", f"it was driven for {hours:.2f} hours (max_hours = {until.max_hours:g})"


def _merit(evaluations: Sequence[Row]) -> str:
    return "reward" if any(row.get("reward") is not None for row in evaluations) else "loss"


def _tokens(metrics: Sequence[Row], before: Sequence[Row]) -> int:
    """Return the tokens of all steps. TRL counts those of rows, and counts them up, in a fork from
    what its parent had."""
    if metrics and "num_prepared_rows" in metrics[-1]:
        of_parent = before[-1].get("num_tokens", 0) if before else 0
        return int(metrics[-1].get("num_tokens", 0) - of_parent)
    return sum(row.get("num_sampled_tokens", row.get("num_trained_tokens", 0)) for row in metrics)
